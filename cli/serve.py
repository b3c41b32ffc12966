"""The work of `tidelog serve`: start a broker by the command line, set up its log, and print its greeting."""

import errno
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

import tidelog
from tidelog import native
from tidelog.broker import serve as server
from tidelog.broker.broker import Broker, BrokerFailed
from tidelog.broker.catalog import CatalogError
from tidelog.broker.clock import Clock
from tidelog.broker.net.server import CannotListen
from tidelog.broker.net.service_manager import notify_ready
from tidelog.cli.broker_options import configure
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.text import called, counted, drop_output, note, shown
from tidelog.config.errors import ConfigError
from tidelog.config.inert import BROKER_INERT
from tidelog.config.kinds import host_and_port
from tidelog.config.options import BROKER_OPTIONS, BrokerConfig
from tidelog.config.table import Source
from tidelog.protocol import compiled
from tidelog.storage.errors import StorageError

# Wildcard addresses, and an address that reaches them from this machine.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# pip hides the output of a build, so this is printed at each start.
INTERPRETED = (
    "loops over bytes interpreted, slower: apt-get install gcc python3-dev, then install Tidelog again "
    "(in its folder: make setup)"
)
_TIME = "%Y-%m-%dT%H:%M:%S"
_log = logging.getLogger(__name__)


def run(
    data_dir: Path | None,
    port: int | None,
    config_file: Path | None,
    overrides: Sequence[str],
    ready_file: Path | None,
    log_level: str | None,
    test_control: bool,
    test_clock: str | None,
    check: bool,
    stop_at_eof: bool,
) -> int:
    """Run a broker by the options of the command line until a signal ends it; return the exit code."""
    _end_by_signals()
    _raise_file_limit()
    if log_level is not None:
        overrides = [*overrides, f"log.level={log_level}"]
    try:
        config = configure(config_file, overrides, data_dir)
        config = config if port is None else config.on_port(port)
    except ConfigError as error:
        return _complain(str(error), USAGE)
    _start_logging(config)
    clock = Clock()
    if test_clock is not None:
        if not test_control:
            return _complain("--test-clock needs --test-control", USAGE)
        from tidelog.config import times

        try:
            clock.hold(times.parse(test_clock, clock.now_ms()))
        except times.TimeError as error:
            return _complain(f"--test-clock {test_clock}: {error}", USAGE)
    if ready_file is not None and (problem := server.ready_file_problem(ready_file, config.log_dir)):
        return _complain(f"--ready-file {ready_file}: {problem}", USAGE)
    for line in () if check else config.notes:
        _log.info("%s", line)

    def ready(broker: Broker, addresses: list[tuple[str, int]]) -> None:
        if ready_file is not None:  # before the greeting, so that it is there for a reader of the greeting
            _write_ready_file(ready_file, addresses[0])
        notify_ready()
        _greet(broker, addresses)

    try:
        if check:
            return _print_outlook(config)
        uvloop.run(
            server.serve(config, ready, clock=clock, test_control=test_control, stop_at_eof=stop_at_eof)
        )
    except CannotListen as error:
        is_taken = error.error.errno == errno.EADDRINUSE
        return _complain(_address_taken(error, config) if is_taken else str(error))
    except (StorageError, CatalogError, BrokerFailed) as error:
        return _complain(str(error))
    except OSError as error:
        # The error of a failed write names no file; it was in the data folder.
        return _complain(f"{error.filename or config.log_dir}: {error.strerror or error}")
    return OK


def _print_outlook(config: BrokerConfig) -> int:
    """Print the options that a start would use other than their defaults, warnings, and a summary."""
    from tidelog.broker import start_check
    from tidelog.cli.configs import OPTIONS, SOURCES
    from tidelog.cli.output import print_rows

    config, topics, warnings = start_check.check(config)
    rows = [
        {"option": each.name, "value": each.text, "source": SOURCES[each.source]}
        for each in config.describe()
        if each.source != Source.DEFAULT and (each.name in BROKER_OPTIONS or each.name in BROKER_INERT)
    ]
    if rows:
        print_rows(OPTIONS[:3], rows, as_json=False)
    if not compiled.COMPILED:
        warnings.append(INTERPRETED)
    for warning in warnings:
        print(f"warning: {shown(warning)}")
    where = ", ".join(map(str, config.listeners))
    held = "made at the start" if topics is None else counted(topics, "topic")
    print(f"would start: listens on {where}; data in {shown(str(config.log_dir))}, {held}")
    return OK


def _complain(message: str, exit_code: int = FAILED) -> int:
    note(message)
    return exit_code


def _address_taken(error: CannotListen, config: BrokerConfig) -> str:
    port = error.listener.port
    option = "--port"
    if error.listener not in config.listeners:
        option = "--config http.port=N"
    elif error.listener != config.listeners[0]:
        option = "--config listeners=..."
    return (
        f"port {port} is in use ({error.listener}): choose another with {option}; to see which process uses it: "
        f"ss -ltnp sport = :{port}"
    )


def _write_ready_file(path: Path, address: tuple[str, int]) -> None:
    try:
        server.write_ready_file(path, address)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"--ready-file {path}") from error


def _end_by_signals() -> None:
    """Let signals end process 1 of a container before the broker handles them.

    The system does not deliver signals without a handler to process 1.
    """
    if os.getpid() != 1:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))


def _raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: each partition and each connection needs some."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _greet(broker: Broker, addresses: list[tuple[str, int]]) -> None:
    """Print two lines: what the broker is, and a command to try."""
    where = ", ".join(host_and_port(*address) for address in addresses)
    which = "loops over bytes compiled" if compiled.COMPILED else INTERPRETED
    if not compiled.COMPILED:
        _log.warning("%s", INTERPRETED)
    requests = native.state()
    if requests != native.INTERPRETED:
        which = f"{which}; requests {requests}"
    data = broker.logs.directory
    host, port = addresses[0]
    reached = host_and_port(_REACHED_AT.get(host, host), port)
    try:
        print(
            f"Tidelog {tidelog.__version__} listens on {where}; data in {shown(str(data))}; {which}",
            flush=True,
        )
        print(f"Try: echo hello | {called()} produce greetings --bootstrap {reached}", flush=True)
    except OSError:  # standard output is closed, which does not stop the broker
        drop_output(sys.stdout)


class _OneLine(logging.Formatter):
    """Escapes control characters in a message, so that it is one line; a traceback follows on its own lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        return shown(super().formatMessage(record))


class _Json(logging.Formatter):
    """Writes an event as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": f"{self.formatTime(record, _TIME)}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _start_logging(config: BrokerConfig) -> None:
    """Log to stderr, one line for each event: time, level, logger, and the event with its name=value pairs."""
    formatter: logging.Formatter = _OneLine(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", _TIME
    )
    if config.log_format == "json":
        formatter = _Json()
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
