"""replay: send the records of an exact range of times to a topic of a broker.

Each partition is sent in the order of its offsets, and records keep their create times. The sink (`pipeline.writing`)
limits the rate, and with `--resume` leaves out records that the topic has already.
"""

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.client.admin import topic_options
from tidelog.client.offsets import LATEST, offsets_of
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.jobs.parts.exit_codes import OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.pipeline.tasks import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = (
    "topic string, partition int, offset bigint, create_time timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
_STAMPS: Final = "message.timestamp.type"


def run(
    flags: JobFlags, target: str, target_topic: str, rate: int, is_resumed: bool, keep_partition: bool
) -> int:
    """Send the range; return the exit code."""
    chosen = flags.chosen()
    found = scan(chosen)
    if flags.dry_run:
        flags.print_scan(found)
        return OK
    address = address_of(flags, target)
    if not target_topic:
        raise WrongOption("--target-topic is missing; name the topic to write to")
    sent = _counter(address, target_topic)
    topic_id = KINDS[chosen.kind].topic_offsets(chosen, now_ms()).topic_id
    progress = Progress("replay")
    progress.say(found.words)
    options = {
        "target": f"broker:{address}",
        "topic": target_topic,
        "job": job_of(chosen, topic_id),
        "resume": str(is_resumed).lower(),
        **({"maxRecordsPerSecond": str(rate)} if rate else {}),
    }
    frame = in_order(flags.read(flags.session(), COLUMNS))
    with tempfile.TemporaryDirectory(prefix="tidelog-") as folder:
        report = Path(folder, "report")
        try:
            with progress.watching(sent, found.records_at_most):
                _write(frame, {**options, "report": str(report)}, keep_partition, topic_id)
        except BaseException:
            progress.say("what was sent stays; the same command with --resume sends the rest")
            raise
        counts = json.loads(report.read_text())
    done = {"rows": counts["written"], "left_out": counts["left_out"]}
    flags.print_account("replay", done, topic=target_topic)
    return OK


def address_of(flags: JobFlags, target: str) -> str:
    """Return HOST:PORT of the broker to write to: the source if no target is named."""
    kind, _, address = (target or flags.source).partition(":")
    if kind != "broker" or not address:
        raise WrongOption(
            f"--target: {target or 'it is missing'}; write broker:HOST:PORT, only a broker appends"
        )
    return address


def job_of(chosen: Options, topic_id: str) -> str:
    """Return the name of the job for the sink's marks: it identifies the topic and the range."""
    first = "start" if chosen.from_ms is None else chosen.from_ms
    end = "end" if chosen.to_ms is None else chosen.to_ms
    of = f"{chosen.topic}/{topic_id}" if topic_id else chosen.topic
    return f"replay.{of}.{chosen.clock}.{first}.{end}"


def in_order(records: "DataFrame") -> "DataFrame":
    """Return the records with each partition in one task, ordered by offset."""
    return records.repartition("partition").sortWithinPartitions("partition", "offset")


def _write(frame: "DataFrame", options: dict[str, str], keep_partition: bool, topic_id: str) -> None:
    from tidelog.pipeline.writing.sink import rewritten

    rewritten(frame, keep_partition, topic_id).write.format("tidelog").options(**options).mode(
        "append"
    ).save()


def _counter(address: str, topic: str) -> Callable[[], int]:
    """Return a function that counts the records appended to a topic since; PipelineError if it stamps its records."""
    with connected(address) as cluster:
        numbers = cluster.topic(topic).leaders
        if topic_options(cluster, topic).get(_STAMPS) == "LogAppendTime":
            raise PipelineError(
                f"topic {topic} at {address} replaces the times of its records, so create times would be lost: set "
                f"its {_STAMPS} to CreateTime"
            )
        before = sum(offsets_of(cluster, topic, dict.fromkeys(numbers, LATEST)).values())
    counted = 0

    def count() -> int:
        nonlocal counted
        with suppress(PipelineError), connected(address) as cluster:  # the writer reports errors
            counted = sum(offsets_of(cluster, topic, dict.fromkeys(numbers, LATEST)).values()) - before
        return counted

    return count
