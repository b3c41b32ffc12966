"""Stored options: those that were set while a broker ran, perhaps of another version or configuration.

A stored option never stops a broker from starting. An invalid one is left out, and a message names it.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.config.errors import ConfigError
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TOPIC_OPTIONS, TopicConfig

# These replace an invalid value, so that a mistake does not delete records.
_SAFE: Final = {"cleanup.policy": "", "retention.bytes": "-1", "retention.ms": "-1"}
# The same for a broker's defaults of topics, by each of their names: the option to set instead, and its value.
_SAFE_OF_BROKER: Final = {
    name: (row.broker, _SAFE[row.name])
    for row in map(TOPIC_OPTIONS.__getitem__, _SAFE)
    for name in (row.broker, *row.aliases)
}


def broker_options(
    config: BrokerConfig, own: Mapping[str, str], everywhere: Mapping[str, str]
) -> tuple[BrokerConfig, list[str]]:
    """Return a broker's configuration with its stored options and those of all brokers, and messages.

    If a default of retention is invalid, topics keep their records.
    """
    try:
        return config.changed(own, everywhere), []
    except ConfigError:
        pass
    kept_own: dict[str, str] = {}
    kept_everywhere: dict[str, str] = {}
    pending = [
        *((kept_everywhere, name, text) for name, text in everywhere.items()),
        *((kept_own, name, text) for name, text in own.items()),
    ]
    while True:  # some options are valid only together with others
        refused = []
        for kept, name, text in pending:
            kept[name] = text
            try:
                config.changed(kept_own, kept_everywhere)
            except ConfigError as error:
                del kept[name]
                refused.append((kept, name, text, str(error)))
        if len(refused) == len(pending):
            break
        pending = [(kept, name, text) for kept, name, text, _ in refused]
    messages = []
    for kept, name, _, message in refused:
        instead, safe = _SAFE_OF_BROKER.get(name, (None, ""))
        if instead is not None and instead not in kept:
            kept[instead] = safe
            message = _replaced(message, instead, safe)
        messages.append(message)
    return config.changed(kept_own, kept_everywhere), messages


def topic_options(defaults: TopicConfig, options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the valid stored options of a topic, and messages.

    If an option of retention is invalid, the topic keeps its records.
    """
    kept, refused = {}, []
    for name, text in options.items():
        try:
            defaults.override({name: text})
            kept[name] = text
        except ConfigError as error:
            message = str(error)
            if name in _SAFE:
                kept[name] = _SAFE[name]
                message = _replaced(message, name, _SAFE[name])
            refused.append(message)
    return kept, refused


def _replaced(message: str, name: str, value: str) -> str:
    return f"{message}; until then {name}={value} applies, which deletes no records"
