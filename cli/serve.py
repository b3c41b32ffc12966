"""`tidelog serve`: from the command line to a running broker, and the lines that it says."""

import logging
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

import tidelog
from tidelog.broker.catalog import CatalogError
from tidelog.broker.daemon import Broker
from tidelog.broker.server import serve, write_ready_file
from tidelog.config.errors import ConfigError
from tidelog.config.load import load
from tidelog.config.options import BrokerConfig
from tidelog.protocol.records import kernel
from tidelog.storage.errors import StorageError

LOG_LEVELS = ("debug", "info", "warning", "error")
_log = logging.getLogger(__name__)


def run(
    config_file: Path | None,
    overrides: Sequence[str],
    data_dir: Path | None,
    port: int | None,
    ready_file: Path | None,
    log_level: str,
) -> int:
    """Run the broker; return the exit code: 0 after an orderly stop, 1 if it could not start."""
    if log_level not in LOG_LEVELS:
        return _complain(f"--log-level {log_level}: it is one of {', '.join(LOG_LEVELS)}")
    _start_logging(log_level)
    _raise_file_limit()
    try:
        config = _configure(config_file, overrides, data_dir, port)
        for note in config.notes:
            _log.info("%s", note)

        def ready(broker: Broker, addresses: list[tuple[str, int]]) -> None:
            _greet(broker, addresses)
            if ready_file is not None:
                write_ready_file(ready_file, addresses[0])

        uvloop.run(serve(config, ready))
    except (ConfigError, StorageError, CatalogError, OSError) as error:
        return _complain(str(error))
    return 0


def _complain(message: str) -> int:
    print(f"tidelog: {message}", file=sys.stderr)
    return 1


def _configure(
    config_file: Path | None, overrides: Sequence[str], data_dir: Path | None, port: int | None
) -> BrokerConfig:
    flags = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(override, "write it as name=value", source="--override")
        flags[name.strip()] = value.strip()
    if data_dir is not None:
        flags["log.dir"] = str(data_dir)
    config = load(config_file, os.environ, flags)
    return config if port is None else config.on_port(port)


def _raise_file_limit() -> None:
    """Allow as many open files as the system lets us: each partition and each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _greet(broker: Broker, addresses: list[tuple[str, int]]) -> None:
    """Say in two lines that the broker is there, and what to try."""
    where = ", ".join(f"{host}:{port}" for host, port in addresses)
    which = "compiled" if kernel.COMPILED else "interpreted"
    port = addresses[0][1]
    data = broker.logs.directory
    print(f"Tidelog {tidelog.__version__} listens on {where}; data in {data}; kernel {which}", flush=True)
    print(f"Try: echo hello | tidelog produce greetings --bootstrap 127.0.0.1:{port}", flush=True)


def _start_logging(level: str) -> None:
    """One line an event on stderr: time, level, logger, event and its name=value pairs."""
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
