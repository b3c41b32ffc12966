"""Checks a catalogue: its file, and whether a start would serve its topics and honour its options and counters."""

from collections.abc import Iterator
from pathlib import Path

from tidelog.broker import catalog
from tidelog.broker.catalog import ALL_BROKERS, FIRST_EPOCH_MAX, PRODUCER_ID_BLOCK, Contents, TopicRecord
from tidelog.broker.topic_rules import record_problem
from tidelog.config.errors import ConfigError
from tidelog.config.kinds import LONG_MAX
from tidelog.config.options import dynamic_option
from tidelog.config.topic_options import TopicConfig


def faults(path: Path) -> list[str]:
    """Return what is wrong with a catalogue, as `catalog.faults` does."""
    return catalog.faults(path, refused)


def refused(contents: Contents) -> list[str]:
    """Return what a start would not serve or honour."""
    topics, options, counters = contents
    return [*_of_topics(topics), *_of_brokers(options), *_of_counters(counters)]


def _of_topics(topics: list[TopicRecord]) -> Iterator[str]:
    for topic in topics:
        if problem := record_problem(topic):
            yield f"topic {topic.name!r} is not served: {problem}; restore the catalogue from a backup"
        for name, value in topic.options.items():
            try:
                TopicConfig().override({name: value})
            except ConfigError as error:
                yield f"an option of topic {topic.name!r} is not honoured: {error}; set or delete it"


def _of_brokers(options: catalog.OptionsOfBrokers) -> Iterator[str]:
    for broker, values in options.items():
        owner = "all brokers" if broker == ALL_BROKERS else f"broker {broker}"
        for name, value in values.items():
            try:
                dynamic_option(name).read(value, given=name)
            except ConfigError as error:
                yield f"an option of {owner} is not honoured: {error}; set or delete it"


def _of_counters(counters: dict[str, int]) -> Iterator[str]:
    bounds = {
        "leader_epoch": (0, FIRST_EPOCH_MAX, "consumers may ignore topics that are made again"),
        "producer_id": (
            PRODUCER_ID_BLOCK,
            LONG_MAX - PRODUCER_ID_BLOCK,
            "producers may get no id, or that of another",
        ),
    }
    for name, (least, most, effect) in bounds.items():
        value = counters.get(name, least)
        if not least <= value <= most:
            yield (
                f"the counter {name} is {value}, not {least} to {most}: {effect}; "
                "restore the catalogue from a backup"
            )
