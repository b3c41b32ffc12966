"""Sessions with a broker, through kafka-python, for the verbs that need one.

Owns the client library: what it is called, how it is set up, what its errors are called here. It is imported when a
session begins, because it takes a quarter of a second. Refuses to know what is asked of the broker. Invariant: no
exception of the library leaves this module.
"""

import logging
import re
import socket  # noqa: TID251  (one knock at the door, before a client library is loaded)
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.cli import kafka_python
from tidelog.cli.errors import CommandError, PartitionsRefused
from tidelog.cli.exit_codes import UNREACHABLE, USAGE
from tidelog.cli.text import called, counted
from tidelog.config.kinds import check_host, host_and_port
from tidelog.config.nearest import nearest

DEFAULT_PORT: Final = 9092
PORT_MAX: Final = 65535
CONNECT_TIMEOUT_S: Final = 5
BOOTSTRAP_TIMEOUT_MS: Final = 10_000
# How long a broker may acknowledge nothing of what is sent, or not say where to send it.
GIVE_UP_S: Final = 20
# How long a producer's thread may take to end. It may be amid a longer wait, and ends with us then.
CLOSE_S: Final = 1
NAME: Final = "tidelog-cli"
LOOKUP_CLOCK: Final = "lookup.clock"
# What ListOffsets is asked for instead of a time.
MAX_TIMESTAMP: Final = -3

STORAGE_FAILS: Final = (
    "the broker cannot use its files; its log says why, and /health does where http.port is set"
)
_UNKNOWN_TOPIC: Final = 3
_UNKNOWN_MEMBER: Final = 25
_NO_GROUP: Final = 69
# Of an option that nobody has set, as DescribeConfigs tells it.
_DEFAULT_SOURCE: Final = 5
# Where those of kafka-python would not help the person who reads them.
_OWN_WORDS: Final = {
    _UNKNOWN_TOPIC: "no such topic or partition",
    10: "larger than max.message.bytes, which is the topic's or the broker's",
    17: "a topic name has 1 to 249 ASCII letters, digits, '.', '_' and '-', is not '.' or '..', and differs from "
    "others in more than '.' and '_'",
    kafka_python.KAFKA_STORAGE_ERROR: STORAGE_FAILS,
}

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>[0-9]+))?")

# kafka-python carries no types.
Client = Any
T = TypeVar("T")


@contextmanager
def admin(bootstrap: str) -> Iterator[Client]:
    """Open a session for asking about topics and changing them."""
    with _errors(bootstrap):
        from kafka.admin import KafkaAdminClient

        with _closing(KafkaAdminClient(**_settings(bootstrap))) as client:
            kafka_python.make_no_topics(client._manager)
            kafka_python.hear_refused_lookups(client, "_list_partition_offsets_process_response", _refused)
            yield client


@contextmanager
def consumer(bootstrap: str) -> Iterator[Client]:
    """Open a session for reading by assignment; it makes no topic and joins no group."""
    with _errors(bootstrap):
        from kafka import KafkaConsumer

        settings = _settings(bootstrap) | {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "max_poll_records": 2000,
            "metrics_enabled": False,
        }
        with _closing(KafkaConsumer(**settings)) as client:
            kafka_python.make_no_topics(client._manager)
            kafka_python.hear_of_damage(client._fetcher)
            kafka_python.hear_refused_lookups(client._fetcher, "_handle_list_offsets_response", _refused)
            kafka_python.let_resumed_on(client._fetcher)
            yield client


@contextmanager
def producer(bootstrap: str) -> Iterator[Client]:
    """Open a session for writing: each record once, in order, acknowledged when it is on disk.

    When the session ends, what is not acknowledged is not sent any more; that takes CLOSE_S at most.
    """
    with _errors(bootstrap):
        from kafka import KafkaProducer

        settings = _settings(bootstrap) | {
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": 5,
            "request_timeout_ms": 10_000,
            "delivery_timeout_ms": 30_000,
            "max_block_ms": GIVE_UP_S * 1000,
            # What is too large is for the topic to say.
            "max_request_size": 100 << 20,
            "metrics_enabled": False,
        }
        client = KafkaProducer(**settings)
        kafka_python.hear_refusals(client._metadata)
        kafka_python.hear_refused_batches(client._sender)
        try:
            yield client
        finally:
            _end(client)


def choose(topic: str, there: Collection[int], wanted: Collection[int]) -> list[Any]:
    """Return the wanted partitions of those that are there, or all, as kafka-python's TopicPartition, by number."""
    from kafka import TopicPartition

    if not there:
        raise _no_topic(topic)
    if missing := sorted(set(wanted) - set(there)):
        raise CommandError(
            f"topic {topic} has no partition {missing[0]}; it has {counted(max(there) + 1, 'partition')}, from 0 on"
        )
    return [TopicPartition(topic, number) for number in sorted(set(wanted or there))]


def describe(client: Client, topic: str) -> dict[str, Any]:
    """Return what an admin session is told about one topic."""
    found: dict[str, Any]
    (found,) = client.describe_topics([topic])
    if found["error_code"] == _UNKNOWN_TOPIC:
        raise _no_topic(topic)
    check(f"topic {topic or repr(topic)}", found)
    return found


def _no_topic(topic: str) -> CommandError:
    return CommandError(f"topic {topic} does not exist; {called()} topics list shows all topics")


def own_options(client: Client, topic: str) -> dict[str, str]:
    """Return the options that were set on a topic, by name."""
    from kafka.admin import ConfigResource, ConfigResourceType

    answer = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    (found,) = answer["topic"].values()
    return {name: option["value"] for name, option in sorted(found.items())}


def alter_options(
    client: Client, resource: "Resource", changes: dict[str, str | None], *, validate_only: bool = False
) -> None:
    """Set options of a topic or broker, and delete those that are None; raise CommandError for what is refused.

    kafka-python 3.0.12 has the code and the message of a refusal in one text.
    """
    from kafka.admin import AlterConfigOp

    _check_node(client, resource)
    if deleted := [name for name, value in changes.items() if value is None]:
        _check_deleted(resource, deleted, options(client, resource, every=True))
    steps = {
        name: (AlterConfigOp.DELETE, None) if value is None else (AlterConfigOp.SET, value)
        for name, value in changes.items()
    }
    request = client._alter_configs_request([resource.with_options(steps)], validate_only, incremental=True)
    (answer,) = client._manager.run(client._manager.send, request, resource.node_id).responses
    found = answer.to_dict()
    if found["error_code"] == _UNKNOWN_TOPIC and resource.topic is not None:
        raise _no_topic(resource.topic)
    check(f"{resource} was not changed", found)


def _check_deleted(resource: "Resource", names: Sequence[str], known: dict[str, dict[str, Any]]) -> None:
    """Refuse to delete what cannot be set: brokers, Kafka's too, take any name there, as one that is not set."""
    for name in names:
        if name not in known:
            problem = f"no such option{nearest(name, known)}"
        elif known[name]["read_only"]:
            problem = "cannot be changed while the broker runs"
        else:
            continue
        raise CommandError(f"{resource} was not changed: --delete-config {name}: {problem}")


def _check_node(client: Client, resource: "Resource") -> None:
    """Refuse a broker that there is not; kafka-python 3.0.12 says no more of it than its number."""
    if resource.node_id is None:
        return
    there = sorted(each["broker_id"] for each in client.describe_cluster()["brokers"])
    if resource.node_id not in there:
        names = f"broker{'' if len(there) == 1 else 's'} {', '.join(map(str, there))}"
        raise CommandError(f"there is no broker {resource.node_id}: the cluster has {names}")


def options(client: Client, resource: "Resource", *, every: bool) -> dict[str, dict[str, Any]]:
    """Return the options of a topic or broker, by name: those that were set, or all of them."""
    from kafka.protocol.admin import DescribeConfigsRequest

    _check_node(client, resource)
    wanted = resource.with_options({})
    request = DescribeConfigsRequest(resources=[(wanted.resource_type, wanted.name, None)], min_version=1)
    (answer,) = client._manager.run(client._manager.send, request, resource.node_id).results
    found = answer.to_dict()
    if found["error_code"] == _UNKNOWN_TOPIC and resource.topic is not None:
        raise _no_topic(resource.topic)
    check(str(resource), found)
    return {
        option["name"]: option
        for option in sorted(found["configs"], key=lambda option: str(option["name"]))
        if every or option["config_source"] != _DEFAULT_SOURCE
    }


class Resource(NamedTuple):
    """What has options: a topic, or a broker by its number."""

    topic: str | None
    node_id: int | None = None

    def __str__(self) -> str:
        """Return it as it is told."""
        return f"broker {self.node_id}" if self.topic is None else f"topic {self.topic}"

    def with_options(self, options: dict[str, Any]) -> Any:
        """Return it as kafka-python's ConfigResource."""
        from kafka.admin import ConfigResource, ConfigResourceType

        if self.topic is None:
            return ConfigResource(ConfigResourceType.BROKER, str(self.node_id), options)
        return ConfigResource(ConfigResourceType.TOPIC, self.topic, options)


def lookup_clock(client: Client, topic: str) -> str:
    """Return the clock by which the broker finds a topic's records by time; one that has no such option is Kafka."""
    from kafka.admin import ConfigResource, ConfigResourceType

    wanted = ConfigResource(ConfigResourceType.TOPIC, topic, {LOOKUP_CLOCK: None})
    answer = client.describe_configs([wanted], config_filter="all")
    (found,) = answer["topic"].values()
    return str(found[LOOKUP_CLOCK]["value"]) if LOOKUP_CLOCK in found else "record"


def at_time(client: Client, wanted: Mapping[Any, int]) -> dict[Any, Any]:
    """Return the first record at or after a time of each partition; CommandError names a topic that has no times."""
    from kafka.errors import UnsupportedForMessageFormatError

    found: dict[Any, Any] = {}
    for topic in sorted({key.topic for key in wanted}):
        try:
            found |= client.list_partition_offsets(
                {key: at for key, at in wanted.items() if key.topic == topic}
            )
        except UnsupportedForMessageFormatError:
            raise CommandError(
                f"topic {topic} has no times: it is kept in format 0 (message.format.version), whose records carry "
                "none; name an offset instead, or have it searched by the time of appends: "
                f"{called()} topics alter {topic} --config {LOOKUP_CLOCK}=append"
            ) from None
    return found


def largest_times(client: Client, chosen: Sequence[Any]) -> dict[Any, Any]:
    """Return the record with the largest timestamp of each partition of a topic; none of one that has no times."""
    from kafka.errors import UnsupportedForMessageFormatError

    try:
        found: dict[Any, Any] = client.list_partition_offsets(dict.fromkeys(chosen, MAX_TIMESTAMP))
    except UnsupportedForMessageFormatError:
        return {}
    return found


def without_refused(
    ask: Callable[[list[Any]], T], chosen: Sequence[Any]
) -> tuple[T, PartitionsRefused | None]:
    """Ask about partitions; return the answer, and the error for those whose logs the broker cannot use."""
    refused: set[Any] = set()
    while True:
        try:
            found = ask([key for key in chosen if key not in refused])
        except PartitionsRefused as error:
            refused |= error.keys
        else:
            return found, _refused(sorted(refused)) if refused else None


def _refused(partitions: Sequence[Any]) -> PartitionsRefused:
    from kafka import TopicPartition

    keys = [TopicPartition(*each) for each in partitions]
    return PartitionsRefused(keys, _words_of(kafka_python.KAFKA_STORAGE_ERROR))


def delete_records(client: Client, wanted: Mapping[Any, int]) -> dict[Any, int]:
    """Delete what lies before an offset of each partition, and return where it begins now; CommandError if refused."""
    from kafka.errors import BrokerResponseError

    try:
        found = client.delete_records(dict(wanted))
    except BrokerResponseError as error:
        # That of several partitions names them, and is of no code; that of one names it in its text alone.
        which = f"{error.args[0]}: " if error.errno else ""
        raise CommandError(f"{which}{reason(error)}") from error
    return {key: each["low_watermark"] for key, each in found.items()}


def partition(topic: str, number: int) -> Any:
    """Return a partition as kafka-python's TopicPartition."""
    from kafka import TopicPartition

    return TopicPartition(topic, number)


def existing(client: Client, wanted: Sequence[Any]) -> list[Any]:
    """Return those partitions of which the broker knows: offsets outlive a topic for a while."""
    topics = sorted({key.topic for key in wanted})
    found = client.describe_topics(topics) if topics else []
    there = {(topic["name"], each["partition_index"]) for topic in found for each in topic["partitions"]}
    return [key for key in wanted if (key.topic, key.partition) in there]


def groups(client: Client) -> dict[str, dict[str, Any]]:
    """Return all groups by their ids; state and type are None where a broker is too old to say them."""
    return {
        each["group_id"]: {
            "group": each["group_id"],
            "state": each.get("group_state"),
            "type": each.get("group_type"),
            "protocol_type": each["protocol_type"],
        }
        for each in client.list_groups()
    }


def group(client: Client, name: str) -> dict[str, Any] | None:
    """Return a group's state, type, protocol and members, with what each member reads; None where it is not there."""
    listed = groups(client).get(name)
    if listed is None:
        return None
    by_newer_protocol = str(listed["type"]).lower() == "consumer"
    told = _described(client, name, by_newer_protocol=by_newer_protocol)
    if told.error_code == _NO_GROUP:
        return None
    check(f"group {name}", {"error_code": told.error_code, "error_message": told.error_message})
    read = _assigned_by_broker if by_newer_protocol else _assigned_by_member
    return {
        **listed,
        "state": told.group_state,
        "assignor": told.assignor_name if by_newer_protocol else told.protocol_data,
        "members": [
            {
                "member": each.member_id,
                "instance": each.instance_id if by_newer_protocol else each.group_instance_id,
                "client_id": each.client_id,
                "host": each.client_host,
                "assignment": sorted(
                    ({"topic": topic, "partitions": sorted(numbers)} for topic, numbers in read(each)),
                    key=lambda assigned: str(assigned["topic"]),
                ),
            }
            for each in sorted(told.members, key=lambda each: (each.client_id, each.member_id))
        ],
    }


def _described(client: Client, name: str, *, by_newer_protocol: bool) -> Any:
    if by_newer_protocol:
        from tidelog.cli import consumer_group_api

        request = consumer_group_api.DescribeGroupsRequest(group_ids=[name])
    else:
        from kafka.protocol.admin import DescribeGroupsRequest

        request = DescribeGroupsRequest(groups=[name])
    (answer,) = _ask_coordinator(client, name, request).groups
    return answer


def _ask_coordinator(client: Client, group: str, request: Any) -> Any:
    async def ask() -> Any:
        return await client._manager.send(request, node_id=await client._find_coordinator_id(group))

    return client._manager.run(ask)


def _assigned_by_broker(member: Any) -> list[tuple[str, list[int]]]:
    return [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions]


def _assigned_by_member(member: Any) -> list[tuple[str, list[int]]]:
    """Return what a member was assigned, where that is in the form of consumers: others have their own."""
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    try:
        assignment = ConsumerProtocolAssignment.decode(member.member_assignment)
    except (struct.error, ValueError):
        return []
    return [(each.topic, each.partitions) for each in assignment.assigned_partitions]


def committed(client: Client, group: str) -> dict[Any, int]:
    """Return the offsets that a group has committed, by partition."""
    found = client.list_group_offsets({group: None})[group]
    return {key: each.offset for key, each in found.items() if each.offset >= 0}


def commit(client: Client, group: str, offsets: dict[Any, int]) -> None:
    """Commit offsets for a group without members; CommandError names the first that was refused."""
    from kafka.structs import OffsetAndMetadata

    wanted = {key: OffsetAndMetadata(offset, "", None) for key, offset in offsets.items()}
    for key, error in sorted(client.alter_group_offsets(group, wanted).items()):
        if error.errno == _UNKNOWN_MEMBER:
            raise CommandError(f"group {group} was not reset: it has members by now")
        if error.errno:
            raise CommandError(f"group {group}, partition {key.partition} of {key.topic}: {_words(error)}")


def delete_group(client: Client, group: str) -> None:
    """Delete a group; CommandError if the broker refuses."""
    from kafka.protocol.admin import DeleteGroupsRequest

    (answer,) = _ask_coordinator(client, group, DeleteGroupsRequest(groups_names=[group])).results
    check(f"group {group} was not deleted", answer.to_dict())


def poll(session: Client, timeout_ms: int) -> dict[Any, list[Any]]:
    """Return the records that have come, by partition; one that carries no time has -1 for it.

    kafka-python 3.0.12 says None of those of format 0, and -1 of others.
    """
    return {
        key: [
            record if record.timestamp is not None else record._replace(timestamp=-1, timestamp_type=-1)
            for record in records
        ]
        for key, records in session.poll(timeout_ms).items()
    }


def take_damaged(session: Client) -> dict[Any, int]:
    """Return, once, the partitions that the broker could not read, and the offset at which that was."""
    damaged: dict[Any, int] = session._fetcher.damaged
    session._fetcher.damaged = {}
    return damaged


def refused_fetches(session: Client) -> PartitionsRefused | None:
    """Return the error for the partitions that the broker could not read when it was last asked."""
    refused = session._fetcher.refused
    return _refused(sorted(refused)) if refused else None


def stalled(session: Client, seconds: float) -> CommandError:
    """Return the error for a broker that has sent nothing for so long, with the reason if it gave one."""
    refused = refused_fetches(session)
    return CommandError(
        f"the broker has sent nothing for {seconds} s{f': {refused}' if refused else ''}", UNREACHABLE
    )


def any_error() -> type[Exception]:
    """Return what all exceptions of kafka-python derive from."""
    from kafka.errors import KafkaError

    error: type[Exception] = KafkaError
    return error


def unknown_topic_error() -> type[Exception]:
    """Return what the library raises where the broker knows a topic no more."""
    from kafka.errors import UnknownTopicOrPartitionError

    error: type[Exception] = UnknownTopicOrPartitionError
    return error


def timeout_error() -> type[Exception]:
    """Return what the library raises where an answer did not come in time."""
    from kafka.errors import KafkaTimeoutError

    error: type[Exception] = KafkaTimeoutError
    return error


def refusal(session: Client, topic: str) -> str | None:
    """Return what the broker last answered a producer that asked for a topic's partitions; None if no error."""
    code = session._metadata.refusals.get(topic)
    return _words_of(code) if code else None


def batch_refusal(session: Client) -> str | None:
    """Return what the broker last answered to a producer's batch; None if it was no error."""
    answer = session._sender.refusal
    return answer and _of_broker(answer.error_code, answer.error_message)


def check(what: str, answer: dict[str, Any]) -> None:
    """Raise CommandError if the broker's answer about something is an error."""
    code = answer["error_code"]
    if code:
        raise CommandError(f"{what}: {_of_broker(code, answer.get('error_message'))}")


def reason(error: BaseException) -> str:
    """Return what an exception of kafka-python says, in a few words."""
    if getattr(error, "errno", None):
        return _words(type(error))
    return " ".join(", ".join(str(part) for part in error.args).split()) or type(error).__name__


def _of_broker(code: int, message: str | None) -> str:
    """Return what a broker says of an error: its own words where it has some."""
    return message or _words_of(code)


def _words_of(code: int) -> str:
    from kafka.errors import for_code

    return _words(for_code(code))


def _words(error: type[Any]) -> str:
    return f"{_OWN_WORDS.get(error.errno, error.description)} ({error.message}, {error.errno})"


def _settings(bootstrap: str) -> dict[str, Any]:
    # What the library has to say is said by the errors that it raises.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    return {
        # kafka-python reads some spellings otherwise than we do.
        "bootstrap_servers": host_and_port(*_address(bootstrap)),
        "client_id": NAME,
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
    }


def _end(client: Client) -> None:
    """End a producer at once, whatever the broker does and wherever a Ctrl-C has left it.

    `close` waits for everything that is on its way, also at the end of the process, and a producer whose `send` was
    broken off may wait for that one for ever (kafka-python 3.0.12 counts the appends in progress, and a Ctrl-C amid
    one is never counted down). So its thread is asked to end, and left alone if it does not: it dies with the process.
    """
    client._sender.force_close()
    client._sender.join(CLOSE_S)
    client._unregister_cleanup()
    client._closed = True


@contextmanager
def _closing(client: Client) -> Iterator[Client]:
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _errors(bootstrap: str) -> Iterator[None]:
    """Refuse an address where nobody listens, and put the library's errors in one line."""
    _knock(bootstrap)
    from kafka.errors import (
        KafkaConnectionError,
        KafkaError,
        KafkaTimeoutError,
        NodeNotReadyError,
    )

    try:
        yield
    except (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError) as error:
        message = f"the broker at {bootstrap} does not answer: {reason(error)}"
        raise CommandError(message, UNREACHABLE) from error
    except KafkaError as error:
        raise CommandError(reason(error)) from error


def _knock(bootstrap: str) -> None:
    """Find out at once, and with the system's reason, whether the address can be reached."""
    host, port = _address(bootstrap)
    port_hint = "" if port == DEFAULT_PORT else f" --port {port}"
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        advice = f"start one with {called()} serve{port_hint}"
        if isinstance(error, socket.gaierror):
            advice = "--bootstrap takes the host and port that a broker listens on"
        message = f"cannot reach a broker at {bootstrap}: {error.strerror or error}; {advice}"
        raise CommandError(message, UNREACHABLE) from error


def _address(bootstrap: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(bootstrap)
    if found is None:
        raise _misspelled(bootstrap, "write it as host:port, with an IPv6 address as [::1]:9092")
    host, digits = found["v6"] or found["host"], (found["port"] or str(DEFAULT_PORT)).lstrip("0")
    if not digits or len(digits) > len(str(PORT_MAX)) or int(digits) > PORT_MAX:
        raise _misspelled(bootstrap, f"the port is out of range, 1 to {PORT_MAX}")
    try:
        check_host(host)
    except ValueError as error:
        raise _misspelled(bootstrap, str(error)) from None
    return host, int(digits)


def _misspelled(bootstrap: str, why: str) -> CommandError:
    return CommandError(f"--bootstrap {bootstrap}: {why}", USAGE)
