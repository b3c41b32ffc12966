"""Tiers: the places that have, or should have, the same records: a log, a copy of it, a table that was written of it.

Owns how a tier is named (`KIND:WHERE`), what a look at one would read, and the way from one to its records as a frame.
Knows nothing of what is compared.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts.flags import Asked
from tidelog.pipeline.jobs.parts.place import place
from tidelog.pipeline.jobs.parts.scan import Scan, scan
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import QUARANTINE
from tidelog.pipeline.tables import IS_BOUND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGS: Final = ("segments", "broker")
TABLES: Final = ("parquet", "delta")
FLAG: Final = "--against"


class Tier(NamedTuple):
    """A place by its kind, and the flags of a job that reads it."""

    kind: str
    where: str
    asked: Asked

    @property
    def name(self) -> str:
        """Return what it is called in a report: nothing that is secret is in it."""
        return f"{self.kind}:{remote.shown(self.where)}"

    def scan(self) -> Scan:
        """Return how much is read of it; PipelineError where it is not there."""
        if self.kind in LOGS:
            return scan(self.asked.chosen(now_ms()))
        from tidelog.pipeline.jobs.parts import table_files

        found = table_files.files(place(FLAG, self.where), self.kind)
        return Scan(None, None, sum(each.size for each in found), len(found), None)

    def read(self, spark: "SparkSession", columns: str) -> "DataFrame":
        """Return columns of its records, those of the topic and the range of times; of a log no bound is a time."""
        if self.kind in LOGS:
            from tidelog.pipeline.transforms.windows import without_bounds

            return without_bounds(self.asked.read(spark, f"{columns}, {IS_BOUND} boolean"))
        from tidelog.pipeline.jobs.parts import table_files

        chosen = self.asked.chosen(now_ms())
        bounds = {"first_ms": chosen.from_ms, "end_ms": chosen.to_ms}
        wanted = {name: str(at_ms) for name, at_ms in bounds.items() if at_ms is not None}
        told = {"topic": chosen.topic, "clock": chosen.clock, **wanted}
        return table_files.read(spark, place(FLAG, self.where), self.kind, columns, told)


def source(asked: Asked) -> Tier:
    """Return the tier that `--source` names, which is known to be one."""
    kind, _, where = asked.source.partition(":")
    return Tier(kind, where, asked)


def named(asked: Asked, words: Sequence[str]) -> list[Tier]:
    """Return the tiers that the words of a flag name; WrongOption for one that names none, or one twice."""
    found: list[Tier] = []
    for number, word in enumerate(words, 1):
        kind, _, where = word.partition(":")
        if kind not in LOGS + TABLES or not where:
            raise WrongOption(
                f"{FLAG}: {word!r} is none; write segments:FOLDER, broker:HOST:PORT, parquet:PATH or delta:PATH"
            )
        if kind in LOGS:
            # Files of the same name are damaged in two places: each has a quarantine of its own.
            bad = f"{asked.bad}/against-{number}" if asked.bad.startswith(QUARANTINE) else asked.bad
            tier = Tier(kind, where, dataclasses.replace(asked, source=word, bad=bad))
        else:
            tier = Tier(kind, where, asked)
        if tier.name in (each.name for each in (source(asked), *found)):
            raise WrongOption(f"{FLAG}: {word!r} is named twice; compare with another place")
        found.append(tier)
    return found
