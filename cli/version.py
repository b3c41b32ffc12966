"""`tidelog version`: the version, and with `--verbose` what runs compiled."""

import platform

import click

import tidelog
from tidelog import native
from tidelog.cli.exit_codes import OK
from tidelog.cli.text import examples


@click.command("version", epilog=examples("tidelog version", "tidelog version --verbose"))
@click.option("--verbose", is_flag=True, help="Say also which Python runs it, and what is compiled.")
def version(verbose: bool) -> int:
    """Print the version."""
    print(f"tidelog {tidelog.__version__}")
    if verbose:
        from tidelog.protocol import compiled

        print(f"python {platform.python_version()}, {platform.python_implementation()}")
        print(f"loops over bytes: {'compiled' if compiled.COMPILED else 'interpreted'}")
        print(f"requests: {native.state()}")
    return OK
