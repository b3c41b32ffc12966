"""Makes a topic as another was at a time, beside the running broker (`storage.forking`). Maintenance thread only."""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.broker.broker import Broker
from tidelog.broker.topic_rules import BrokerStops, check_option, name_problem
from tidelog.broker.topics import NewTopic, Topic
from tidelog.broker.work import turn
from tidelog.config.times import show
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.topic_names import CLUSTER_METADATA, is_internal
from tidelog.storage import forking, retention
from tidelog.storage.errors import StorageError
from tidelog.storage.forking import Forked
from tidelog.storage.log import Log
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME

CLOCKS: Final = {"append": APPEND_TIME, "record": RECORD_TIME}


class CannotFork(StorageError):
    """A topic cannot be forked; the message says why."""


async def fork(
    broker: Broker, name: str, at_ms: int, new_name: str, clock: str, options: Mapping[str, str]
) -> dict[str, Any]:
    """Make a topic as another was before a time; return what it holds. StorageError, ConfigError, TopicExists,
    TopicNamesCollide or BrokerStops mean that nothing was made.
    """
    topics, now_ms = broker.topics, broker.clock.now_ms()
    source = topics.find(name, b"")
    if source is None:
        raise CannotFork(f"topic {name} does not exist")
    if problem := _problem(name) or _problem(new_name) or name_problem(new_name):
        raise CannotFork(problem)
    topics.check_new(new_name)
    if at_ms > now_ms:
        raise CannotFork(f"{show(at_ms)} is in the future; it is {show(now_ms)}")
    if clock not in CLOCKS:
        raise CannotFork(f"there is no clock {clock!r}; the clocks are {', '.join(CLOCKS)}")
    for option, value in options.items():
        check_option(option, value)
    config = topics.checked(new_name, {**source.options, **options})
    cuts = [await _cut(partition.log, at_ms, clock) for partition in source.partitions]
    if not any(cut > each.log.log_start_offset for cut, each in zip(cuts, source.partitions, strict=True)):
        raise CannotFork(
            f"topic {name} has no record before {show(at_ms)} by the {clock} clock: there were none then, or they have "
            "been deleted"
        )
    forks: list[Forked] = []

    async def make(partition: int, topic_id: bytes, topic_config: TopicConfig) -> Forked:
        log, logs = source.partitions[partition].log, broker.logs
        target = logs.directory / f"{new_name}-{partition}"
        steps = forking.fork(log, cuts[partition], target, topic_id, topic_config, logs.first_epoch, now_ms)
        try:
            while True:
                next(steps)
                await turn()
                if topics.is_stopping:
                    raise BrokerStops(f"topic {new_name}: not made, the broker stops")
        except StopIteration as end:
            made: Forked = end.value
        except StorageError as error:
            if topics.find(None, source.id) is None:
                raise CannotFork(f"topic {name} was deleted meanwhile; {new_name} was not made") from error
            raise
        finally:
            steps.close()
        forks.append(made)
        return made

    new = NewTopic(new_name, len(source.partitions), dict(config.overrides))
    made = await topics.fork(new, make)
    looked_ms = now_ms + broker.config.log_retention_check_interval_ms
    return {"partitions": [_described(*each, looked_ms) for each in zip(_logs(made), forks, strict=True)]}


def _problem(name: str) -> str | None:
    if name == CLUSTER_METADATA or is_internal(name):
        return f"topic {name} is internal, and cannot be forked or made by a fork"
    return None


async def _cut(log: Log, at_ms: int, clock: str) -> int:
    await turn()
    if log.unopened is not None:
        raise CannotFork(f"{log} is not served: {log.unopened}")
    return forking.cut_at(log, at_ms, CLOCKS[clock])


def _logs(topic: Topic) -> list[Log]:
    return [partition.log for partition in topic.partitions]


def _described(log: Log, made: Forked, looked_ms: int) -> dict[str, Any]:
    """Describe a partition of a new topic; retention soon deletes its records before `expires_to`."""
    end = made.end_offset
    records = sum(segment.summary.record_count for segment in log.segments)
    expired = retention.expired(log.segments, log.log_start_offset, log.config, looked_ms)
    kept_from = log.segments[expired].base_offset if expired < len(log.segments) else end
    return {
        "partition": log.partition,
        "start_offset": made.start_offset,
        "end_offset": end,
        "records": min(records, end - made.start_offset),
        "bytes": log.size_bytes,
        "copied_bytes": made.copied_bytes,
        "expires_to": kept_from if expired else None,
    }
