"""The work of `tidelog audit keys`: the keys of a topic that a group has not read to their end.

`pipeline.key_audit` finds them. A committed offset n means that record n - 1 was delivered; no committed offset counts
as 0.
"""

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from tidelog.broker.clock import Clock
from tidelog.cli import offsets
from tidelog.cli.connect import choose, connected, describe_topic, unread_words
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK
from tidelog.cli.groups import no_group
from tidelog.cli.output import Column, duration, or_dash, plain, print_rows, progress, to_json
from tidelog.cli.text import called, counted
from tidelog.client.cluster import Cluster, Partition
from tidelog.client.errors import BrokerError
from tidelog.client.fetching import RECORD_BYTES, fetched
from tidelog.client.groups import committed, list_groups
from tidelog.pipeline import key_audit
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.key_audit import Behind, Bounds
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import entries
from tidelog.protocol.records.build import READ_LIMIT_BYTES
from tidelog.storage.compaction.reading import Entry

# Without --json, the keys that wait longest.
SHOWN: Final = 100
KEYS: Final = (
    Column("partition", "partition", is_number=True),
    Column("key", "key", plain),
    Column("produced_offset", "produced", is_number=True),
    Column("delivered", "delivered", is_number=True),
    Column("behind", "behind", is_number=True),
    Column("behind_ms", "waits", duration, is_number=True),
)


def keys(
    topic: str, group: str, partitions: Sequence[int], memory: int, as_json: bool, bootstrap: str
) -> int:
    """Print each key that a group has not read to its end; return the exit code. `memory` is in MiB."""
    with connected(bootstrap) as cluster:
        found = _behind(cluster, topic, group, partitions, memory << 20)
        now_ms = Clock().now_ms()
        try:
            if as_json:
                for partition, each in found:
                    print(to_json(each.row(partition, now_ms)))
            else:
                _show(topic, group, found, now_ms)
        except PipelineError as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            if error.filename is not None or isinstance(error, BrokenPipeError):
                raise
            raise CommandError(f"a temporary file: {error.strerror}; set TMPDIR to another folder") from error
    return OK


def _behind(
    cluster: Cluster, topic: str, group: str, partitions: Sequence[int], table_bytes: int
) -> Iterator[tuple[int, Behind]]:
    described = describe_topic(cluster, topic)
    chosen = choose(described, partitions)
    if group not in list_groups(cluster):
        raise no_group(group)
    passed = committed(cluster, group)
    starts, ends, unread = offsets.bounds(cluster, chosen)
    if unread:
        raise CommandError(unread_words(unread))
    bounds = {key: Bounds(starts[key], ends[key], passed.get(key, 0)) for key in chosen}
    left = sum(each.end - max(each.committed, each.start) for each in bounds.values())
    with progress(f"audit {topic}", max(left, 0), beside_output=True) as advance:
        for key, each in bounds.items():
            if max(each.committed, each.start) >= each.end:
                continue
            read = partial(_entries, cluster, key._replace(topic_id=bytes(described.topic_id)))
            for one in key_audit.behind(read, each, table_bytes):
                advance(one.records)
                yield key.partition, one


def _entries(cluster: Cluster, key: Partition, start: int, end: int) -> Iterator[list[Entry]]:
    """Yield the entries of a range of offsets, in order, in lists as they arrive.

    Records that are deleted during the read are left out. CommandError if the log is damaged.
    """
    offset = start
    try:
        for answer in fetched(cluster, key, start, end, end, RECORD_BYTES, may_lose=True):
            found: list[Entry] = []
            for at, header in answer.entries:
                if not entries.check_crc(answer.data, at, header):
                    raise _damaged(key, offset)
                if header.record_count == entries.UNKNOWN:
                    header = entries.read(answer.data, at, READ_LIMIT_BYTES)
                if header.last_offset >= offset:
                    found.append(Entry(header, answer.data[at : at + header.size_bytes]))
                    offset = header.last_offset + 1
            yield found
    except BrokerError as error:
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            raise _damaged(key, offset) from error
        raise


def _damaged(key: Partition, offset: int) -> CommandError:
    return CommandError(
        f"partition {key.partition} of {key.topic} is damaged at offset {offset}; {called()} fsck shows the damage"
    )


def _show(topic: str, group: str, found: Iterator[tuple[int, Behind]], now_ms: int) -> None:
    """Print a table of the keys that wait longest, and the number of all keys."""
    longest: list[tuple[int, int, int, Behind]] = []
    number = records = 0
    for number, (partition, each) in enumerate(found, 1):
        records += each.records
        row = (each.waits_ms(now_ms) or 0, -number, partition, each)
        if len(longest) < SHOWN:
            heapq.heappush(longest, row)
        else:
            heapq.heappushpop(longest, row)
    rows = [
        {
            "partition": partition,
            "key": each.key,
            "produced_offset": each.produced_offset,
            "delivered": or_dash(each.delivered_offset if each.gone is None else each.gone),
            "behind": each.records,
            "behind_ms": each.waits_ms(now_ms),
        }
        for _, _, partition, each in sorted(longest, key=lambda row: row[:2], reverse=True)
    ]
    if rows:
        print_rows(KEYS, rows, as_json=False, caption=f"{topic}: keys that {group} has not read to their end")
    of = f"; the {len(rows)} that wait longest are shown" if number > len(rows) else ""
    print(f"{counted(number, 'key')} behind, by {counted(records, 'record')}{of}")
