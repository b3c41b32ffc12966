"""Reads a configuration from its three sources: file, environment, flags; a later source wins.

An unknown option is an error, with its place and the nearest name, so that no broker runs without an option that the
user believes to be set.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.config.contradictions import TOLERABLE
from tidelog.config.errors import ConfigError
from tidelog.config.inert import BROKER_INERT, INERT, ONE_COPY, REFUSED, reason
from tidelog.config.kinds import Listener
from tidelog.config.nearest import nearest
from tidelog.config.options import BROKER_OPTIONS, BrokerConfig
from tidelog.config.properties import read_properties
from tidelog.config.table import Option
from tidelog.config.topic_options import TOPIC_OPTIONS
from tidelog.config.units import plain

# Variables with the prefix KAFKA_ that are not options: those of the JVM and the image, and those that Docker links and
# Kubernetes set beside a service named "kafka".
NOT_OPTIONS = re.compile(
    r"KAFKA_(HOME|VERSION|OPTS|HEAP_OPTS|JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|JMX_\w+|LOG4J_\w+|TOOLS_LOG4J_\w+"
    r"|SERVICE_\w+|PORT(_\d+_(TCP|UDP)\w*)?)"
)

UNDERSCORES = {"_": ".", "__": "_", "___": "-"}


class Setting(NamedTuple):
    """An option as it was written."""

    name: str
    text: str
    source: str


class Chosen(NamedTuple):
    """A setting and its option; `unit` is the factor of the alias that was used."""

    setting: Setting
    row: Option
    unit: int


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Return the broker's configuration; raise ConfigError for the first invalid setting."""
    chosen: dict[str, Chosen] = {}
    notes: list[str] = []
    inert: dict[str, str] = {}
    for settings in (_from_file(file), _from_environ(environ or {}), _from_flags(flags or {})):
        chosen.update(_settle(settings, notes, inert))
    config = BrokerConfig().with_values(
        [
            (row, row.read(setting.text, source=setting.source, given=setting.name, unit=unit))
            for setting, row, unit in chosen.values()
        ],
        explicit={name: each.setting.name for name, each in chosen.items()},
        given_inert=inert,
    )
    try:
        _check_queue(config)
        _check_groups(config)
        _check_replicas(config)
        config.check()
        config = _resolve_listeners(config, notes, _source(chosen, "listeners"))
    except ConfigError as error:
        source = _source(chosen, error.option)
        raise ConfigError(error.option, error.problem, value=error.value, source=source) from None
    for name, value in _replicas(config).items():
        if value > 1:
            notes.append(f"{name} ({_source(chosen, name)}): {value} is tolerated: {ONE_COPY}")
    return dataclasses.replace(config, notes=tuple(notes))


def environ_name(variable: str) -> str:
    """Return the option of a `KAFKA_` variable, spelt as in the apache/kafka image."""
    spelled = variable.removeprefix("KAFKA_").lower()
    return re.sub("_{1,3}", lambda run: UNDERSCORES[run[0]], spelled)


def _from_file(path: Path | None) -> Iterator[Setting]:
    if path is None:
        return
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    for name, text, line in read_properties(content):
        yield Setting(name, text, f"{path}:{line}")


def _from_environ(environ: Mapping[str, str]) -> Iterator[Setting]:
    for variable in sorted(environ):
        if variable.startswith("KAFKA_") and not NOT_OPTIONS.fullmatch(variable):
            yield Setting(environ_name(variable), environ[variable], f"environment {variable}")


def _from_flags(flags: Mapping[str, str]) -> Iterator[Setting]:
    for name, text in flags.items():
        yield Setting(name, text, "command line")


def _spellings() -> dict[str, tuple[str, Option, int]]:
    """Return each accepted name -> (the name in the table, row, unit)."""
    names = {}
    for name, row in BROKER_OPTIONS.items():
        names.update({alias: (name, row, unit) for alias, unit in row.aliases.items()})
        names[name] = name, row, 1
    return names


SPELLINGS = _spellings()


def _settle(settings: Iterable[Setting], notes: list[str], inert: dict[str, str]) -> dict[str, Chosen]:
    """Return the settings of one source by option; of several spellings, that of the finest unit wins.

    Settings without effect go to the notes, and to `inert` if DescribeConfigs shows them.
    """
    chosen: dict[str, Chosen] = {}
    for setting in settings:
        known = SPELLINGS.get(setting.name)
        if known is None:
            notes.append(_note(setting))
            row = BROKER_INERT.get(setting.name)
            if row is not None:
                inert[row.name] = row.text(row.read(_plain(setting).text, source=setting.source))
            continue
        name, row, unit = known
        if name in chosen and chosen[name].unit < unit:
            continue
        chosen[name] = Chosen(_plain(setting), row, unit)
    return chosen


def _plain(setting: Setting) -> Setting:
    """Return a setting with its size or duration as a plain number."""
    name, text, source = setting
    try:
        return Setting(name, plain(name, text), source)
    except ValueError as error:
        raise ConfigError(name, str(error), value=text, source=source) from None


def _note(setting: Setting) -> str:
    """Return the note for a setting without effect; raise ConfigError if it may not be ignored."""
    name, text, source = setting
    refused = reason(name, REFUSED)
    if refused:
        raise ConfigError(name, f"refused: {refused}", value=text, source=source)
    why = reason(name, INERT)
    if why:
        return f"{name} ({source}): accepted; has no effect: {why}"
    if name in TOPIC_OPTIONS:
        problem = f"a topic option; the broker's default for all topics is {TOPIC_OPTIONS[name].broker}"
        raise ConfigError(name, problem, value=text, source=source)
    raise ConfigError(name, f"no such option{nearest(name, SPELLINGS)}", value=text, source=source)


def _source(chosen: Mapping[str, Chosen], name: str) -> str:
    return chosen[name].setting.source if name in chosen else "default"


def _check_queue(config: BrokerConfig) -> None:
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise ConfigError(
            "queued.max.request.bytes",
            f"one request of socket.request.max.bytes={config.socket_request_max_bytes} would never fit",
            value=str(config.queued_max_request_bytes),
        )


def _check_groups(config: BrokerConfig) -> None:
    """Check the times of consumer groups, as Kafka does and in its order."""
    _check_between(
        "heartbeat.interval.ms",
        config.group_consumer_heartbeat_interval_ms,
        config.group_consumer_min_heartbeat_interval_ms,
        config.group_consumer_max_heartbeat_interval_ms,
    )
    _check_between(
        "session.timeout.ms",
        config.group_consumer_session_timeout_ms,
        config.group_consumer_min_session_timeout_ms,
        config.group_consumer_max_session_timeout_ms,
    )
    interval_ms = config.group_consumer_heartbeat_interval_ms
    timeout_ms = config.group_consumer_session_timeout_ms
    if interval_ms >= timeout_ms:
        problem = f"must be shorter than group.consumer.session.timeout.ms={timeout_ms}"
        raise ConfigError("group.consumer.heartbeat.interval.ms", problem, value=str(interval_ms))


def _check_between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        problem = f"must be between group.consumer.min.{name}={low} and group.consumer.max.{name}={high}"
        raise ConfigError(f"group.consumer.{name}", problem, value=str(value))


def _replicas(config: BrokerConfig) -> dict[str, int]:
    return {
        "default.replication.factor": config.default_replication_factor,
        "min.insync.replicas": config.topic.min_insync_replicas,
    }


def _check_replicas(config: BrokerConfig) -> None:
    """Check that no default has more than one replica, unless that is tolerated."""
    for name, value in _replicas(config).items():
        if value > 1 and not config.tidelog_tolerate_replication_factor:
            raise ConfigError(name, f"must be 1: {TOLERABLE}", value=str(value))


def _resolve_listeners(config: BrokerConfig, notes: list[str], source: str) -> BrokerConfig:
    """Remove the listeners for controllers, and check names, protocols and ports of the others."""
    controllers = {name.upper() for name in config.controller_listener_names}
    listeners, advertised = (
        tuple(listener for listener in given if listener.name not in controllers)
        for given in (config.listeners, config.advertised_listeners)
    )
    notes.extend(
        f"listener {listener} ({source}): left out: it is for controllers"
        for listener in config.listeners
        if listener.name in controllers
    )
    _check_listeners(listeners, dict(config.listener_security_protocol_map))
    _check_advertised(advertised, {listener.name for listener in listeners})
    return dataclasses.replace(config, listeners=listeners, advertised_listeners=advertised)


def _check_listeners(listeners: tuple[Listener, ...], protocols: Mapping[str, str]) -> None:
    if not listeners:
        raise ConfigError("listeners", "at least one is needed, besides those for controllers", value="")
    for index, listener in enumerate(listeners):
        others = listeners[:index]
        protocol = protocols.get(listener.name, listener.name)
        if protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            problem = f"{protocol} is not supported yet; use PLAINTEXT"
        elif protocol != "PLAINTEXT":
            problem = f"add {listener.name}:PLAINTEXT to listener.security.protocol.map"
        elif any(other.name == listener.name for other in others):
            problem = f"the name {listener.name} is used twice"
        elif any(other.port == listener.port != 0 for other in others):
            problem = f"port {listener.port} is used twice"
        else:
            continue
        raise ConfigError("listeners", problem, value=str(listener))


def _check_advertised(advertised: tuple[Listener, ...], names: set[str]) -> None:
    for listener in advertised:
        if listener.name not in names:
            problem = f"there is no listener {listener.name}{nearest(listener.name.lower(), names)}"
        elif listener.is_wildcard:
            problem = "clients need a host that they can reach, not every interface"
        else:
            continue
        raise ConfigError("advertised.listeners", problem, value=str(listener))
