"""audit-keys: of each key that a group has not read to its end, what was produced last, and what was delivered.

Owns the rows, which are those of `tidelog audit keys`, and where committed offsets come from: the broker that is read,
the `__consumer_offsets` of the data folder that is read, or a file. Invariant: it is as of the moment at which the job
began: offsets behind that are left out.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.client.cluster import Partition
from tidelog.client.groups import committed as committed_by
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts import committed as commits
from tidelog.pipeline.jobs.parts import output
from tidelog.pipeline.jobs.parts.exit_codes import OK
from tidelog.pipeline.jobs.parts.flags import Asked
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = (
    "partition",
    "key",
    "produced_offset",
    "delivered_offset",
    "delivered",
    "behind",
    "behind_ms",
)
READ: Final = "partition int, offset bigint, create_time timestamp, key binary"
COMPACTED, DELETED = "compacted", "deleted"


def run(asked: Asked, group: str, committed: str) -> int:
    """Print the keys that are behind; return the exit code."""
    from tidelog.pipeline.tasks import KINDS

    chosen, began_ms = asked.chosen(now_ms()), now_ms()
    if asked.from_time or asked.to_time:
        raise WrongOption(
            "--from: what was delivered is told by offsets, of the whole log; leave out the times"
        )
    if bool(group) == bool(committed):
        raise WrongOption(
            "--group is missing; name the group, or a file of what it has committed (--committed)"
        )
    heads = KINDS[chosen.kind].heads(chosen, began_ms)
    offsets = _in_file(committed, chosen.topic) if committed else _of_group(chosen, group, list(heads.spans))
    if asked.dry_run:
        output.print_scan(scan(chosen), as_json=asked.as_json)
        return OK
    progress = Progress("audit-keys")
    progress.say(scan(chosen).words)
    counted = _Count()
    rows = counted.of(_rows(asked, heads.spans, offsets, began_ms))
    if asked.as_json:
        for row in rows:
            print(json.dumps(_as_json(row), ensure_ascii=False))
    else:
        output.print_rows(COLUMNS, [{**row, "key": _shown(row["key"])} for row in rows], as_json=False)
    progress.say(f"{counted.keys:,} keys behind, by {counted.records:,} records")
    return OK


class _Count:
    """How many rows there were."""

    keys = 0
    records = 0

    def of(self, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for row in rows:
            self.keys += 1
            self.records += row["behind"]
            yield row


def _of_group(chosen: Options, group: str, partitions: list[int]) -> dict[int, int]:
    """Return what a group has committed of a topic, as the source tells; PipelineError where it does not know it."""
    if chosen.kind == "broker":
        with connected(chosen.place) as cluster:
            wanted = [Partition(chosen.topic, number) for number in partitions]
            offsets = committed_by(cluster, group, wanted)
        return {each.partition: offset for each, offset in offsets.items()}
    if remote.is_remote(chosen.place):
        raise WrongOption(
            "--group: an object store has no groups; name a file of what it has committed (--committed)"
        )
    found = commits.in_folder(Path(chosen.place), now_ms())
    if group not in {reads.group for reads in found}:
        raise PipelineError(
            f"group {group} has committed nothing that {chosen.place} has; name another group"
        )
    return {
        reads.partition: offset
        for reads, offset in found.items()
        if (reads.group, reads.topic) == (group, chosen.topic)
    }


def _in_file(name: str, topic: str) -> dict[int, int]:
    """Return the offsets in a file: JSON lines with partition and committed, as `lag --json` prints them."""
    found: dict[int, int] = {}
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongOption(f"--committed: {name} cannot be read: {error}") from None
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row = json.loads(line)
            partition, offset = int(row["partition"]), int(row["committed"])
        except (ValueError, KeyError, TypeError):
            raise WrongOption(
                f'--committed: line {number} of {name} is none; write {{"partition": 0, "committed": 17}}, a line each'
            ) from None
        if row.get("topic", topic) != topic:
            continue
        if partition in found:
            raise WrongOption(
                f"--committed: {name} has partition {partition} twice; leave the lines of one group"
            )
        found[partition] = offset
    return found


def _rows(
    asked: Asked, spans: dict[int, tuple[int, int]], offsets: dict[int, int], began_ms: int
) -> Iterator[dict[str, Any]]:
    from tidelog.pipeline.transforms import keys

    spark = asked.session()
    nexts = {each: max(offsets.get(each, 0), start) for each, (start, _) in spans.items()}
    bounds = spark.createDataFrame(
        [(each, nexts[each], end) for each, (_, end) in spans.items()],
        "partition int, next bigint, end bigint",
    )
    records = asked.read(spark, READ)
    found = keys.behind(records, bounds).orderBy("partition", "first")
    gone = _gone(asked.read(spark, "partition int, offset bigint"), bounds, spans, nexts, offsets)
    for row in found.toLocalIterator():
        at_ms = row["first_ms"]
        delivered = row["delivered"]
        yield {
            "partition": row["partition"],
            "key": None if row["key"] is None else bytes(row["key"]),
            "produced_offset": row["produced"],
            "delivered_offset": delivered,
            "delivered": gone[row["partition"]] if delivered is None else None,
            "behind": row["behind"],
            "behind_ms": None if at_ms is None else max(0, began_ms - at_ms),
        }


def _gone(
    records: "DataFrame",
    bounds: "DataFrame",
    spans: dict[int, tuple[int, int]],
    nexts: dict[int, int],
    offsets: dict[int, int],
) -> dict[int, str | None]:
    """Return of each partition what may have taken records that were delivered."""
    from tidelog.pipeline.transforms import keys

    there = {row["partition"]: row["n"] for row in keys.passed(records, bounds).collect()}
    found: dict[int, str | None] = {}
    for each, (start, _) in spans.items():
        is_hole = there.get(each, 0) < nexts[each] - start
        is_deleted = min(offsets.get(each, 0), start) > 0
        found[each] = COMPACTED if is_hole else DELETED if is_deleted else None
    return found


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as `tidelog audit keys` has it."""
    told: dict[str, Any] = {"partition": row["partition"], **_json_key(row["key"])}
    told |= {name: row[name] for name in ("produced_offset", "delivered_offset")}
    if row["delivered"] is not None:
        told["delivered"] = row["delivered"]
    return told | {name: row[name] for name in ("behind", "behind_ms")}


def _json_key(key: bytes | None) -> dict[str, str | None]:
    try:
        return {"key": None if key is None else key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": base64.b64encode(key or b"").decode()}


def _shown(key: bytes | None) -> str | None:
    return None if key is None else key.decode("utf-8", "backslashreplace")
