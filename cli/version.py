"""`tidelog version`: the version, and with `--verbose` the commit, the formats, and what runs compiled."""

import platform

import click

import tidelog
from tidelog import native
from tidelog.cli.exit_codes import OK
from tidelog.cli.text import examples


@click.command("version", epilog=examples("tidelog version", "tidelog version --verbose"))
@click.option(
    "--verbose",
    is_flag=True,
    help="Print also the Python, the commit, the file formats, and what is compiled.",
)
def version(verbose: bool) -> int:
    """Print the version."""
    print(f"tidelog {tidelog.__version__}")
    if verbose:
        from tidelog.broker import catalog
        from tidelog.commit import commit
        from tidelog.protocol import compiled
        from tidelog.storage import append_index, backup, summary

        print(f"python {platform.python_version()}, {platform.python_implementation()}")
        print(f"commit: {commit() or 'unknown'}")
        print(
            f"formats: catalogue {catalog.SCHEMA_VERSION}, summary {summary.VERSION}, "
            f"append index {append_index.VERSION}, backup {backup.VERSION}"
        )
        print(f"loops over bytes: {'compiled' if compiled.COMPILED else 'interpreted'}")
        print(f"requests: {native.state()}")
    return OK
