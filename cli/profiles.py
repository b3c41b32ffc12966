"""Profiles: names for brokers, in `tidelog.toml` of the user's configuration folder.

[default]
bootstrap = "127.0.0.1:9093"

[work]
bootstrap = "broker.example:9092"
"""

import os
from pathlib import Path
from typing import Any, Final

import click

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import USAGE

BOOTSTRAP_VARIABLE: Final = "TIDELOG_BOOTSTRAP"
PROFILE_VARIABLE: Final = "TIDELOG_PROFILE"
_DEFAULT: Final = "default"
_BOOTSTRAP: Final = "127.0.0.1:9092"

profile_option = click.Option(
    ["--profile"],
    metavar="NAME",
    help=f"The profile of ~/.config/tidelog.toml that names the broker. Default: {PROFILE_VARIABLE}, else {_DEFAULT}.",
)


def bootstrap() -> str:
    """Return where the broker listens, if the verb is not told; CommandError if a profile cannot be used."""
    profile: str | None = click.get_current_context().find_root().params.get("profile")
    if profile is None and (address := os.environ.get(BOOTSTRAP_VARIABLE)):
        return address
    profile = profile or os.environ.get(PROFILE_VARIABLE)
    folder = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config"
    path = Path(folder) / "tidelog.toml"
    profiles = _read(path)
    if profile is None and _DEFAULT not in profiles:
        return _BOOTSTRAP
    name = profile or _DEFAULT
    if name not in profiles:
        advice = (
            f"it has {', '.join(profiles)}" if profiles else f'write [{name}] and bootstrap = "HOST:PORT"'
        )
        what = f"has no profile {name}" if path.exists() else "does not exist"
        raise CommandError(f"{path}: {what}; {advice}", USAGE)
    found = profiles[name]
    if not isinstance(found, dict) or set(found) != {"bootstrap"} or not isinstance(found["bootstrap"], str):
        raise CommandError(
            f'{path}: profile {name} must be [{name}] with bootstrap = "HOST:PORT" alone', USAGE
        )
    return found["bootstrap"]


def _read(path: Path) -> dict[str, Any]:
    """Return the profiles of a file; none if it is missing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", USAGE) from error
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except ValueError as error:
        raise CommandError(f"{path}: is not TOML: {error}", USAGE) from error
