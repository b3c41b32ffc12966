"""Changes to the options of topics and of the broker, one resource after another, on the maintenance thread.

Decides what may be changed, and with which code a change is refused; the rules are Kafka's (`ConfigAdminManager`,
`ConfigurationControlManager`). The two APIs differ in how they make new options of a request; each passes a `Settle`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from tidelog.broker.broker import Broker
from tidelog.broker.catalog import ALL_BROKERS
from tidelog.broker.codes import Refused, error_code
from tidelog.broker.quota import Owner
from tidelog.broker.topic_rules import check_option
from tidelog.broker.work import Coro, Stopping, step
from tidelog.config.errors import ConfigError
from tidelog.config.inert import BROKER_INERT, TOPIC_INERT
from tidelog.config.kinds import LIST
from tidelog.config.options import BROKER_OPTIONS, BrokerConfig
from tidelog.config.table import Option
from tidelog.config.topic_options import TOPIC_OPTIONS, TopicConfig
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage.errors import StorageError

# Kafka's types of resources.
TOPIC, BROKER = 2, 4
# About the memory of a resource in a waiting request, and of each of its options.
RESOURCE_BYTES: Final = 400
OPTION_BYTES: Final = 300

Options = dict[str, str]
# The present items of an option that is a list; None for another option.
ItemsOf = Callable[[str], tuple[str, ...] | None]


class Resource(Protocol):
    """A topic or a broker in a request; each of `configs` has the name of an option."""

    resource_type: int
    resource_name: str
    configs: Any


# Returns the new own options of a resource, given the requested changes, the present own options, and the items of
# lists.
Settle = Callable[[Any, Options, ItemsOf], Options]
S = TypeVar("S")
R = TypeVar("R", bound=Resource)


def change(
    broker: Broker,
    owner: Owner,
    resources: Sequence[R],
    settle: Settle,
    validate_only: bool,
    result: Callable[[R, ErrorCode, str | None], S],
) -> Coro[list[S]]:
    """Change each resource on the maintenance thread, or only check the changes. Event loop."""
    size_bytes = sum(RESOURCE_BYTES + len(resource.configs) * OPTION_BYTES for resource in resources)
    task = _change_all(broker, resources, settle, validate_only, result)
    return broker.change(owner, size_bytes, task, resources, result)


async def _change_all(
    broker: Broker,
    resources: Sequence[R],
    settle: Settle,
    validate_only: bool,
    result: Callable[[R, ErrorCode, str | None], S],
) -> list[S]:
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    results = []
    for wanted in {(each.resource_type, each.resource_name): each for each in resources}.values():
        code, message = ErrorCode.NONE, None
        try:
            await step()
            if times[wanted.resource_type, wanted.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await _change(broker, wanted, settle, validate_only)
        except Stopping:
            code, message = ErrorCode.NOT_CONTROLLER, "not changed, the broker stops"
        except Refused as refused:
            code, message = refused.code, str(refused)
        except ConfigError as error:
            # Kafka has another code for the options of a broker (KAFKA-13609).
            is_topic = wanted.resource_type == TOPIC
            code = ErrorCode.INVALID_CONFIG if is_topic else ErrorCode.INVALID_REQUEST
            message = error.answer
        except StorageError as error:
            code, message = error_code(error), str(error)
        results.append(result(wanted, code, message))
    return results


async def _change(broker: Broker, wanted: Resource, settle: Settle, validate_only: bool) -> None:
    twice = [name for name, times in Counter(config.name for config in wanted.configs).items() if times > 1]
    if twice:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(sorted(twice))}"
        )
    if wanted.resource_type == TOPIC:
        await _change_topic(broker, wanted, settle, validate_only)
    elif wanted.resource_type == BROKER:
        await _change_broker(broker, wanted, settle, validate_only)
    else:
        message = (
            f"Unknown resource type {wanted.resource_type}: only topics (2) and the broker (4) have options"
        )
        raise Refused(ErrorCode.INVALID_REQUEST, message)


async def _change_topic(broker: Broker, wanted: Resource, settle: Settle, validate_only: bool) -> None:
    topic = broker.topics.find(wanted.resource_name, b"")
    if topic is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.resource_name}' does not exist."
        )
    config = topic.config
    options = settle(wanted.configs, dict(config.overrides), lambda name: _items_of_topic(config, name))
    _check(options)
    changed = broker.topics.checked(topic.name, options)
    if topic.is_internal and changed.deletes:
        message = f"cleanup.policy: {topic.name} must have compact alone: any other policy would lose committed offsets"
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    if not validate_only:
        await broker.alter_topic(topic, options)


async def _change_broker(broker: Broker, wanted: Resource, settle: Settle, validate_only: bool) -> None:
    if wanted.resource_name not in (ALL_BROKERS, str(broker.node_id)):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id}, but received {wanted.resource_name[:100]}",
        )
    options = settle(
        wanted.configs,
        broker.config.set_for(wanted.resource_name == ALL_BROKERS),
        lambda name: _items_of_broker(broker, name),
    )
    _check(options)
    broker.checked(wanted.resource_name, options)
    if not validate_only:
        await broker.alter_options(wanted.resource_name, options)


def _check(options: Options) -> None:
    for name, value in options.items():
        check_option(name, value)


def _items_of_topic(config: TopicConfig, name: str) -> tuple[str, ...] | None:
    inert = TOPIC_INERT.get(name)
    if inert is not None:
        return LIST.parse(config.overrides.get(name, "")) if inert.kind is LIST else None
    return _items(TOPIC_OPTIONS.get(name), config)


def _items_of_broker(broker: Broker, name: str) -> tuple[str, ...] | None:
    row = BROKER_OPTIONS.get(name)
    inert = BROKER_INERT.get(name)
    if inert is not None:
        return LIST.parse(broker.config.synonyms(inert)[0].text or "") if inert.kind is LIST else None
    return _items(row, broker.config.topic if row is not None and row.broker else broker.config)


def _items(row: Option | None, config: TopicConfig | BrokerConfig) -> tuple[str, ...] | None:
    if row is None or row.kind is not LIST:
        return None
    items: tuple[str, ...] = getattr(config, row.attribute)
    return items
