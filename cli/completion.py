"""`tidelog completion`: the script by which a shell completes command lines, and names from the broker."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK
from tidelog.cli.text import examples

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

# A shell waits for the names, and shows nothing meanwhile.
NAMES_WITHIN_S: Final = 1.0
# A shell sets this variable to ask for completions.
VARIABLE: Final = "_TIDELOG_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog=examples('eval "$(tidelog completion bash)"', "tidelog completion fish | source"),
)
@click.argument("shell", type=click.Choice(SHELLS), help="The shell.")
def completion(shell: str) -> int:
    """Print the script that completes command lines in a shell: verbs, options, topics and groups.

    In bash, run eval "$(tidelog completion bash)". In zsh, run the same with zsh in place of bash. In fish, run tidelog
    completion fish | source.
    """
    import shutil
    from contextlib import nullcontext, redirect_stderr
    from io import StringIO

    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.get_current_context().find_root().command, {}, "tidelog", VARIABLE)
    # click asks bash for its version, and complains if it is not on this machine.
    is_here = shell != "bash" or shutil.which("bash") is not None
    with nullcontext() if is_here else redirect_stderr(StringIO()):
        print(script.source())
    return OK


def topics(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Return the topics of the broker that begin so; none if it does not answer."""
    return _names(context, begun, lambda cluster: (each.name for each in cluster.metadata(None).topics))


def groups(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Return the groups of the broker that begin so; none if it does not answer."""
    from tidelog.client.groups import list_groups

    return _names(context, begun, list_groups)


def _names(context: click.Context, begun: str, ask: "Callable[[Cluster], Iterable[str]]") -> list[str]:
    from tidelog.cli.connect import TooLate, connected, within

    bootstrap = context.params.get("bootstrap")
    if not bootstrap:  # a verb that works without a broker
        return []
    with suppress(CommandError, TooLate), within(NAMES_WITHIN_S), connected(bootstrap) as cluster:
        return sorted(name for name in ask(cluster) if name.startswith(begun))
    return []
