"""The options of a broker, from the command line: a file, the environment, `--override` and `--data-dir`.

The verbs that read a data folder without a broker get the same options here as `serve`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from tidelog.cli.arguments import PATH
from tidelog.config.errors import ConfigError
from tidelog.config.load import load
from tidelog.config.options import BrokerConfig

config_file_option = click.option(
    "--config", "config_file", type=PATH, help="The server.properties file of the broker."
)
overrides_option = click.option(
    "--override",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="An option of the broker, in place of that in the file; may be repeated.",
)


def configure(config_file: Path | None, overrides: Sequence[str], data_dir: Path | None) -> BrokerConfig:
    """Return the options of a broker; ConfigError if it would not start with them."""
    flags = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(override, "write it as name=value", source="--override")
        flags[name.strip()] = value.strip()
    if data_dir is not None:
        flags["log.dir"] = str(data_dir)
    return load(config_file, os.environ, flags)
