"""What the summary and the append index of a segment are to its log, for a start, a reader of a folder and fsck.

Owns which of them counts: a whole summary of this version, and an append index whose header names the segment. Files of
another version do not count. Writes neither. Whether a summary is of another log is for `verification` to tell.
"""

from typing import NamedTuple

from tidelog.storage import append_index, files
from tidelog.storage.append_index import Header
from tidelog.storage.layout import APPEND_INDEX, SUMMARY
from tidelog.storage.segment import Segment
from tidelog.storage.summary import VERSION, Origin, Summary, version_of


class Sidecars(NamedTuple):
    """The summary of a segment or, if none counts, the header of its append index.

    `is_other_version` if an earlier version wrote the files: they are rebuilt from the log, append times become bounds,
    and an empty segment with such a summary stands for lost offsets.
    """

    summary: Summary | None = None
    header: Header | None = None
    has_summary_file: bool = True
    is_other_version: bool = False

    def are_rebuilt(self, size: int) -> bool:
        """Whether a start rebuilds them because of their version; not an append index beside a log without batches."""
        return self.is_other_version and (size > 0 or self.has_summary_file)

    @property
    def has_other_summary(self) -> bool:
        """Whether there is a summary of another version, which may say that the log was flushed."""
        return self.is_other_version and self.has_summary_file

    def unknown(self, base_offset: int, size: int, modified_ms: int, index_interval_bytes: int) -> Summary:
        """Return what is known of a segment without its summary, before its log is read."""
        origin = Origin.IMPORTED if self.header is None else self.header.origin
        return Summary.unknown(base_offset, size, modified_ms, index_interval_bytes, origin)


def load(segment: Segment) -> Sidecars:
    """Read the summary of a segment, and the append index where there is none that counts."""
    data = files.load(segment.path(SUMMARY))
    summary = Summary.decode(data or b"")
    return without_summary(segment, data) if summary is None else Sidecars(summary)


def without_summary(segment: Segment, data: bytes | None = None) -> Sidecars:
    """Read the append index of a segment whose summary does not count; `data` are the bytes of the summary's file."""
    return parsed(segment, data, files.map_readonly(segment.path(APPEND_INDEX)))


def parsed(segment: Segment, summary: bytes | None, appended: bytes | files.Map) -> Sidecars:
    """Return what the bytes of both files say; `summary` is None if there is no file."""
    is_other = is_of_other_version(summary)
    if summary is None:
        is_other = append_index.is_of_other_version(appended)
    header = append_index.parsed(appended).header_of(segment.folder, segment.base_offset)
    return Sidecars(Summary.decode(summary or b""), header, summary is not None, is_other)


def is_of_other_version(summary: bytes | None) -> bool:
    """Tell whether the bytes of a summary, None for a missing file, are of another version."""
    return version_of(summary or b"") not in (None, VERSION)
