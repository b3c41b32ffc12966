"""What a broker is started with, from the command line: a file, the environment, overrides.

Owns the reading of `--config`, `--override` and `--data-dir`, so that what is told of a broker without asking it is
judged by what `serve` would take. Refuses to know what an option means.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from tidelog.config.errors import ConfigError
from tidelog.config.load import load
from tidelog.config.options import BrokerConfig


def configure(config_file: Path | None, overrides: Sequence[str], data_dir: Path | None) -> BrokerConfig:
    """Return the options of a broker. ConfigError for what it would not start with."""
    flags = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(override, "write it as name=value", source="--override")
        flags[name.strip()] = value.strip()
    if data_dir is not None:
        flags["log.dir"] = str(data_dir)
    return load(config_file, os.environ, flags)
