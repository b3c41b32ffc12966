"""Tiers: places that should have the same records, such as a log, a copy of it, or a table that was written from it.

A tier is named `KIND:WHERE`.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.place import place
from tidelog.pipeline.jobs.parts.scan import Scan, scan
from tidelog.pipeline.jobs.parts.table_out import FORMATS
from tidelog.pipeline.options import QUARANTINE
from tidelog.pipeline.tables import IS_BOUND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGS: Final = ("segments", "broker")
FLAG: Final = "--against"


class Tier(NamedTuple):
    """A place, its kind, and the flags that a job reads it with."""

    kind: str
    where: str
    flags: JobFlags

    @property
    def name(self) -> str:
        """The name in a report, without credentials."""
        return f"{self.kind}:{remote.shown(self.where)}"

    def scan(self) -> Scan:
        """Return the size of a scan of it; PipelineError if it does not exist."""
        if self.kind in LOGS:
            return scan(self.flags.chosen())
        from tidelog.pipeline.jobs.parts.tier_files import table_files

        found = table_files(place(FLAG, self.where), self.kind)
        return Scan(None, None, sum(each.size for each in found), len(found), None)

    def read(self, spark: "SparkSession", columns: str) -> "DataFrame":
        """Return its records of the topic and range. An append time that is only a bound becomes null."""
        from tidelog.pipeline.jobs.parts import tier_files
        from tidelog.pipeline.transforms.windows import without_bounds

        if self.kind in LOGS:
            return without_bounds(self.flags.read(spark, f"{columns}, {IS_BOUND} boolean"))
        return tier_files.read(spark, place(FLAG, self.where), self.kind, self.flags.chosen(), columns)


def source(flags: JobFlags) -> Tier:
    """Return the tier that `--source` names."""
    kind, _, where = flags.source.partition(":")
    return Tier(kind, where, flags)


def named(flags: JobFlags, words: Sequence[str]) -> list[Tier]:
    """Parse the values of `--against`; WrongOption for an invalid one, or one that is named twice."""
    found: list[Tier] = []
    for number, word in enumerate(words, 1):
        kind, _, where = word.partition(":")
        if kind not in LOGS + FORMATS or not where:
            raise WrongOption(
                f"{FLAG}: {word!r} is not valid; write segments:FOLDER, broker:HOST:PORT, parquet:PATH or delta:PATH"
            )
        tier = Tier(kind, where, flags)
        if kind in LOGS:
            # Files in two places may have the same names, so each place gets its own quarantine.
            bad = f"{flags.bad}/against-{number}" if flags.bad.startswith(QUARANTINE) else flags.bad
            tier = tier._replace(flags=dataclasses.replace(flags, source=word, bad=bad))
        if tier.name in (each.name for each in (source(flags), *found)):
            raise WrongOption(f"{FLAG}: {word!r} is named twice; compare with another place")
        found.append(tier)
    return found
