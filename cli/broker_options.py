"""The options of a broker, from the command line: a file, the environment, `--config` and `--data-dir`.

The verbs that read a data folder without a broker get the same options here as `serve`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from tidelog.cli.arguments import PATH, Spelled
from tidelog.cli.text import note
from tidelog.config.errors import ConfigError
from tidelog.config.load import load
from tidelog.config.options import BrokerConfig

config_file_option = click.option(
    "--config-file", type=PATH, help="The server.properties file of the broker."
)
overrides_option = click.option(
    "--config",
    "overrides",
    cls=Spelled,
    old=("--override",),
    metavar="NAME=VALUE",
    multiple=True,
    help="An option of the broker, in place of that in the file; may be repeated.",
)


def without_file(config_file: Path | None, settings: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Return the file and the settings of a command line; ConfigError for a setting that is neither.

    `--config FILE` is an old spelling of `--config-file FILE`. No name has a slash, so `/a=b/c` is a file.
    """
    options = []
    for setting in settings:
        name, equals, _ = setting.partition("=")
        if equals and "/" not in name:
            options.append(setting)
        elif not Path(setting).exists():
            problem = "write it as name=value; --config-file takes a file"
            raise ConfigError(setting, problem, source="--config")
        else:
            note(f"--config FILE is an old spelling; write --config-file {setting}")
            config_file = Path(setting)
    return config_file, options


def configure(config_file: Path | None, overrides: Sequence[str], data_dir: Path | None) -> BrokerConfig:
    """Return the options of a broker; ConfigError if it would not start with them."""
    config_file, overrides = without_file(config_file, overrides)
    flags = {}
    for override in overrides:
        name, _, value = override.partition("=")
        flags[name.strip()] = value.strip()
    if data_dir is not None:
        flags["log.dir"] = str(data_dir)
    return load(config_file, os.environ, flags)
