"""`tidelog copy`: copy topics from one cluster to another, up to the ends that it finds at its start.

A rerun continues. How far a partition is copied is committed at the target, in a group whose name has the id of the
source: the next offset there, and as text the next offset of the source. What was appended after the last commit, or
without one, is compared with the source (`client.copying.resume`). So nothing is appended twice, whenever a run ends.

Committed offsets of groups only move forward at the target.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tidelog.cli.arguments import bootstrap_option, json_option, utf8
from tidelog.cli.connect import client_errors, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import INTERRUPTED, OK, UNREACHABLE, USAGE
from tidelog.cli.output import Column, print_rows, progress
from tidelog.cli.text import called, counted, examples, note, shortened

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition
    from tidelog.client.copying import Entry, Place, Writer

SAVE_S: Final = 5
GROUP_PREFIX: Final = "tidelog-copy-"
COLUMNS: Final = (
    Column("topic", "topic"),
    Column("partitions", "partitions", is_number=True),
    Column("present", "already there", is_number=True),
    Column("copied", "copied", is_number=True),
    Column("groups", "groups", is_number=True),
)
_TIMES: Final = "message.timestamp.type"
_CLOCK: Final = "lookup.clock"
# Options of a cluster with several brokers, which the target may not be.
_OF_REPLICAS: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


@click.command(
    "copy",
    epilog=examples(
        "tidelog copy --from kafka:9092 --topics 'tides-.*'", "tidelog copy --to kafka:9092 --topics '.*'"
    ),
)
@click.option(
    "--from", "source", metavar="HOST:PORT", callback=utf8, help="The source. Default: --bootstrap."
)
@click.option("--to", "target", metavar="HOST:PORT", callback=utf8, help="The target. Default: --bootstrap.")
@click.option(
    "--topics",
    "expression",
    metavar="REGEX",
    required=True,
    callback=utf8,
    help="The topics whose whole name matches, such as 'orders|tides-.*'; internal topics never do.",
)
@json_option
@bootstrap_option
def copy(source: str | None, target: str | None, expression: str, as_json: bool, bootstrap: str) -> int:
    """Copy topics from one cluster to another, with their options, and the offsets of groups.

    Give --from, --to, or both. It copies up to the ends that it finds at its start. A rerun continues, and copies no
    record twice.
    """
    if source is None and target is None:
        raise CommandError("give --from HOST:PORT, --to HOST:PORT, or both; --bootstrap is the other", USAGE)
    pattern = _compiled(expression)
    from_flag, from_address = ("--from", source) if source is not None else ("--bootstrap", bootstrap)
    to_flag, to_address = ("--to", target) if target is not None else ("--bootstrap", bootstrap)
    with (
        connected(from_address, flag=from_flag) as reads,
        connected(to_address, flag=to_flag) as writes,
    ):
        copying = _Copying(_Side(reads, from_address, from_flag), _Side(writes, to_address, to_flag))
        return copying.run(pattern, as_json)


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "; '.*' matches every topic" if expression.startswith("*") else ""
        raise CommandError(f"--topics {shortened(expression)}: {error}{hint}", USAGE) from None


class _Side(NamedTuple):
    """A cluster, and how the user named it."""

    cluster: "Cluster"
    address: str
    flag: str

    def errors(self) -> Any:
        """Return a context in which client errors become CommandError about this cluster."""
        return client_errors(self.address, self.flag)


class _Copying:
    """One run."""

    def __init__(self, source: _Side, target: _Side) -> None:
        self._source = source
        self._target = target
        self._identity = (-1, -1)
        self._group = ""
        self._ids: dict[str, bytes] = {}
        self._starts: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._committed: dict[str, dict[Partition, int]] = {}
        self._translated: dict[Partition, dict[int, int]] = {}

    def run(self, pattern: re.Pattern[str], as_json: bool) -> int:
        from tidelog.client.producer import new_identity

        with self._source.errors():
            topics = self._plan(pattern)
            self._committed = self._commits()
        with self._target.errors():
            target = self._target.cluster
            self._identity = target.retried("a producer id", lambda: new_identity(target))
        total = sum(self._ends[key] - self._starts[key] for keys in topics.values() for key in keys)
        rows, status = [], OK
        with progress(f"copy {counted(len(topics), 'topic')}", total) as advance:
            for topic, keys in topics.items():
                row = {"topic": topic, "partitions": len(keys), "present": 0, "copied": 0, "groups": 0}
                rows.append(row)
                try:
                    self._copy_topic(topic, keys, row, advance)
                except CommandError as error:
                    note(str(error))
                    status = error.exit_code
                except KeyboardInterrupt:
                    note(f"stopped by Ctrl-C in topic {topic}; run the command again to continue")
                    status = INTERRUPTED
                if status in (UNREACHABLE, INTERRUPTED):
                    break
            else:
                self._commit_groups(rows)
        print_rows(COLUMNS, rows, as_json=as_json)
        return status

    def _plan(self, pattern: re.Pattern[str]) -> "dict[str, list[Partition]]":
        """Find the topics and their ends; CommandError."""
        from tidelog.client.cluster import Partition
        from tidelog.client.copying import READ_COMMITTED
        from tidelog.client.offsets import EARLIEST, LATEST, list_offsets

        cluster = self._source.cluster
        source = cluster.retried("topics", lambda: cluster.metadata(None))
        with self._target.errors():
            target = self._target.cluster.metadata([])
        self._refuse_same(source, target)
        name = source.cluster_id or self._source.address.replace(":", "-")
        self._group = f"{GROUP_PREFIX}{name}"
        matching = [each for each in source.topics if pattern.fullmatch(each.name)]
        chosen = [each for each in matching if not (each.is_internal or each.name.startswith("__"))]
        if not chosen:
            what = (
                f"only internal topics match {pattern.pattern}"
                if matching
                else f"no topic matches {pattern.pattern}"
            )
            raise CommandError(
                f"--topics: {what}; {called()} topics list --bootstrap {self._source.address} shows all topics"
            )
        self._ids = {each.name: each.topic_id for each in chosen}
        topics = {
            each.name: sorted(Partition(each.name, part.partition_index) for part in each.partitions)
            for each in sorted(chosen, key=lambda each: str(each.name))
        }
        keys = [key for keys in topics.values() for key in keys]
        starts = list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
        ends = list_offsets(cluster, dict.fromkeys(keys, LATEST), isolation_level=READ_COMMITTED)
        self._starts = {key: each.offset for key, each in starts.items()}
        self._ends = {key: max(each.offset, self._starts[key]) for key, each in ends.items()}
        return topics

    def _refuse_same(self, source: Any, target: Any) -> None:
        places = [{(each.host, each.port) for each in side.brokers} for side in (source, target)]
        if places[0] & places[1] or (source.cluster_id and source.cluster_id == target.cluster_id):
            raise CommandError(
                f"{self._source.flag} {self._source.address} and {self._target.flag} {self._target.address} are the "
                f"same cluster ({source.cluster_id}): a topic cannot be copied onto itself",
                USAGE,
            )

    def _commits(self) -> "dict[str, dict[Partition, int]]":
        """Return the committed offsets of all groups that read the topics."""
        from tidelog.client.groups import committed, list_groups

        found = {}
        for group in list_groups(self._source.cluster):
            if group and not group.startswith(GROUP_PREFIX):
                offsets = committed(self._source.cluster, group)
                if kept := {key: offset for key, offset in offsets.items() if key in self._ends}:
                    found[group] = kept
        return found

    def _copy_topic(
        self, topic: str, keys: "Sequence[Partition]", row: dict[str, Any], advance: Callable[[int], object]
    ) -> None:
        with self._target.errors():
            self._prepare(topic, keys)
            known = self._saved(keys)
        for key in keys:
            self._copy(key, known.get(key), row, advance)

    def _prepare(self, topic: str, keys: "Sequence[Partition]") -> None:
        """Create the topic at the target, or check it; set its options while it is empty."""
        from tidelog.client.admin import create_topic, topic_options
        from tidelog.client.errors import Retriable, UnknownTopic
        from tidelog.client.offsets import LATEST, list_offsets
        from tidelog.protocol.error_codes import ErrorCode

        cluster = self._target.cluster
        (found,) = cluster.topics([topic])
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            create_topic(cluster, topic, len(keys), {})
        elif len(found.partitions) < len(keys):
            raise CommandError(
                f"topic {topic} has {counted(len(found.partitions), 'partition')} at the target and {len(keys)} at the "
                f"source: run {called()} topics alter {topic} --partitions {len(keys)} "
                f"--bootstrap {self._target.address}"
            )

        def listed() -> "dict[Partition, Any]":
            try:
                return list_offsets(cluster, dict.fromkeys(keys, LATEST))
            except UnknownTopic as error:  # not all brokers know a new topic at once
                raise Retriable(str(error)) from error

        if not any(each.offset for each in cluster.retried(f"topic {topic}", listed).values()):
            self._copy_options(topic)
        if topic_options(cluster, topic).get(_TIMES) == "LogAppendTime":
            raise CommandError(
                f"topic {topic} was not copied: the target would replace the times of its records; run {called()} "
                f"topics alter {topic} --config {_TIMES}=CreateTime --bootstrap {self._target.address}"
            )

    def _copy_options(self, topic: str) -> None:
        """Set the options that differ from the defaults at the source, and note those that the target refuses."""
        from tidelog.client.admin import (
            DEFAULT_SOURCE,
            Resource,
            alter_options,
            describe_options,
            topic_options,
        )
        from tidelog.client.errors import BrokerError

        resource = Resource(topic)
        with self._source.errors():
            options = describe_options(self._source.cluster, resource)
        there = topic_options(self._target.cluster, topic)
        wanted: dict[str, str | None] = {
            name: each.value
            for name, each in options.items()
            if each.config_source != DEFAULT_SOURCE
            and not each.read_only
            and each.value is not None
            and name not in _OF_REPLICAS
            and there.get(name) != each.value
        }
        if wanted.get(_TIMES) == "LogAppendTime":
            del wanted[_TIMES]
            note(
                f"topic {topic}: {_TIMES}=LogAppendTime is not set: the target would replace the times of records"
            )
        for name, value in wanted.items():
            try:
                alter_options(self._target.cluster, resource, {name: value})
            except BrokerError as error:
                reason = str(error).removeprefix(f"{resource} was not changed: ")
                note(f"topic {topic}: the target refuses {name}={value}: {reason}")

    def _copy(
        self, key: "Partition", known: "Place | None", row: dict[str, Any], advance: Callable[[int], object]
    ) -> None:
        from tidelog.client.copying import Writer

        first, end = self._starts[key], self._ends[key]
        if known is not None and known.source > end:
            raise CommandError(
                f"{key} ends at {end} at the source, and was copied up to {known.source}: the topic was created "
                "again or lost records; delete it at the target to copy it again"
            )
        with self._target.errors():
            place = self._resumed(key, first, known)
        if place.source < first:
            note(
                f"{key}: offsets {place.source} to {first - 1} were deleted at the source before they were copied"
            )
            place = place._replace(source=first, since=first)
        row["present"] += place.target
        wanted = {each[key] for each in self._committed.values() if key in each}
        later = [offset for offset in wanted if offset >= place.source]
        writer = Writer(self._target.cluster, key, place, later, self._identity)
        advance(place.source - first)
        try:
            self._write(key, writer, end, advance)
        except CommandError as error:
            with suppress(CommandError), self._target.errors():
                self._save(key, writer.place)
            raise CommandError(
                f"{error.message}; {key} is copied up to offset {writer.place.source} of the source, where a rerun "
                "continues",
                error.exit_code,
            ) from error
        finally:
            row["copied"] += writer.place.target - place.target
        with self._target.errors():
            self._save(key, writer.place)
        earlier = {offset: self._earlier(key, offset, place) for offset in wanted if offset < place.source}
        found = {offset: to for offset, to in earlier.items() if to is not None}
        self._translated[key] = found | writer.translated

    def _resumed(self, key: "Partition", first: int, known: "Place | None") -> "Place":
        from tidelog.client.copying import Foreign, resume

        try:
            return resume(lambda start: self._read(key, start), self._target.cluster, key, first, known)
        except Foreign as error:
            raise CommandError(
                f"{error}; delete topic {key.topic} at the target, or copy to another cluster"
            ) from error

    def _read(self, key: "Partition", start: int) -> "Iterator[Entry]":
        """Yield the entries of the source from an offset on; CommandError about the source."""
        from tidelog.client.copying import read_committed

        with self._source.errors():
            found = read_committed(self._source.cluster, key, max(start, self._starts[key]), self._ends[key])
        while True:
            with self._source.errors():
                entry = next(found, None)
            if entry is None:
                return
            yield entry

    def _write(self, key: "Partition", writer: "Writer", end: int, advance: Callable[[int], object]) -> None:
        reached, saved_s = writer.place.source, time.monotonic()
        source = self._read(key, reached)
        while (entry := self._next(source, writer)) is not None:
            with self._target.errors():
                writer.add(entry)
                if time.monotonic() - saved_s > SAVE_S:
                    self._save(key, writer.place)
                    saved_s = time.monotonic()
            advance(entry.header.last_offset + 1 - reached)
            reached = entry.header.last_offset + 1
        with self._target.errors():
            writer.finish(end)
        advance(end - reached)

    def _next(self, source: "Iterator[Entry]", writer: "Writer") -> "Entry | None":
        """Return the next entry, None at the end; if the source fails, append what was read before."""
        try:
            return next(source, None)
        except CommandError:
            with self._target.errors():
                writer.flush()
            raise

    def _save(self, key: "Partition", place: "Place") -> None:
        """Commit how far a partition is copied."""
        from tidelog.client.groups import commit

        text = {"source": place.source, "since": place.since, "id": self._ids[key.topic].hex()}
        commit(self._target.cluster, self._group, {key: place.target}, json.dumps(text))

    def _saved(self, keys: "Sequence[Partition]") -> "dict[Partition, Place]":
        """Return how far earlier runs have copied the partitions."""
        from tidelog.client.copying import Place
        from tidelog.client.groups import commits

        found = {}
        for key, each in commits(self._target.cluster, self._group, keys).items():
            with suppress(ValueError, KeyError, TypeError):
                text = json.loads(each.metadata)
                if text["id"] == self._ids[key.topic].hex():
                    found[key] = Place(int(text["source"]), each.offset, int(text["since"]))
        return found

    def _earlier(self, key: "Partition", offset: int, place: "Place") -> int | None:
        """Return the offset at the target of a record that an earlier run has copied: exact if no gap follows.

        Otherwise it is the first record with the same time or a later one. That may be an earlier record, never a later
        one. It is the first record of all if the target looks up append times. None if the record has no time.
        """
        from tidelog.client.admin import topic_options
        from tidelog.client.offsets import EARLIEST, list_offsets

        if offset >= place.since:
            return place.target - (place.source - offset)
        entry = next(self._read(key, offset), None)
        record = None if entry is None else next((r for r in entry.records() if r.offset >= offset), None)
        if record is None or record.timestamp < 0:
            return None
        with self._target.errors():
            by_append = topic_options(self._target.cluster, key.topic).get(_CLOCK) == "append"
            wanted = EARLIEST if by_append else record.timestamp
            found = list_offsets(self._target.cluster, {key: wanted})[key].offset
        return place.target if found < 0 else found

    def _commit_groups(self, rows: Sequence[dict[str, Any]]) -> None:
        """Commit the translated offsets of groups; note groups that the target refuses."""
        from tidelog.client.errors import BrokerError
        from tidelog.client.groups import commit, committed

        topics: dict[str, set[str]] = defaultdict(set)
        for group, offsets in self._committed.items():
            with self._target.errors():
                there = committed(self._target.cluster, group)
                ahead = {
                    key: to
                    for key, offset in offsets.items()
                    if (to := self._translated.get(key, {}).get(offset)) is not None
                    and to > there.get(key, -1)
                }
                try:
                    if ahead:
                        commit(self._target.cluster, group, ahead)
                except BrokerError as error:
                    note(f"group {group} is not copied; does it have members at the target? {error}")
                    continue
            for key in ahead:
                topics[key.topic].add(group)
        for row in rows:
            row["groups"] = len(topics[row["topic"]])
