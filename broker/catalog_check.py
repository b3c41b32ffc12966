"""Whether a catalogue is sound, and whether a start serves each of its topics and honours each of its options."""

from collections.abc import Iterator
from pathlib import Path

from tidelog.broker import catalog
from tidelog.broker.catalog import ALL_BROKERS, OptionsOfBrokers, TopicRecord
from tidelog.broker.topic_rules import record_problem
from tidelog.config.errors import ConfigError
from tidelog.config.options import dynamic_option
from tidelog.config.topic_options import TopicConfig


def faults(path: Path) -> list[str]:
    """Return what is wrong with a catalogue, as `catalog.faults` does."""
    return catalog.faults(path, lambda topics, options: [*_of_topics(topics), *_of_brokers(options)])


def _of_topics(topics: list[TopicRecord]) -> Iterator[str]:
    for topic in topics:
        if problem := record_problem(topic):
            yield f"topic {topic.name!r} is not served: {problem}; restore the catalogue from a backup"
        for name, value in topic.options.items():
            try:
                TopicConfig().override({name: value})
            except ConfigError as error:
                yield f"an option of topic {topic.name!r} is not honoured: {error}; set or delete it"


def _of_brokers(options: OptionsOfBrokers) -> Iterator[str]:
    for broker, values in options.items():
        owner = "all brokers" if broker == ALL_BROKERS else f"broker {broker}"
        for name, value in values.items():
            try:
                dynamic_option(name).read(value, given=name)
            except ConfigError as error:
                yield f"an option of {owner} is not honoured: {error}; set or delete it"
