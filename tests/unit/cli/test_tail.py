"""The order and the choice of records in `tail`, against a cluster in memory."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.fake_cluster import CORRUPT, Entry, FakeCluster
from tidelog.cli import tail
from tidelog.cli.connect import partitions_of
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, INTERRUPTED, UNREACHABLE, USAGE
from tidelog.cli.formats import choose
from tidelog.client.cluster import Partition
from tidelog.client.fetching import Record
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.list_offsets import LIST_OFFSETS

T0, T1 = Partition("t", 0), Partition("t", 1)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "WAIT_MS", 0)


def log(*pairs: tuple[int, int]) -> list[Entry]:
    """Return entries of offsets and record times."""
    return [(offset, record_ms, 0) for offset, record_ms in pairs]


@contextmanager
def opened(*logs: Sequence[tuple[int, int]], at_once: int = 100) -> Iterator[FakeCluster]:
    with FakeCluster(*(log(*each) for each in logs), at_once=at_once) as cluster:
        yield cluster


def reader(
    cluster: FakeCluster, since: int | None = None, follow: bool = False, until: int | None = None
) -> tail.Reader:
    return tail.Reader(cluster, list(cluster.logs), tail.Span(since, until, follow=follow), lambda: 1000)


def places(cluster: FakeCluster, since: int | None = None) -> list[tuple[int, int]]:
    """Return (partition, offset) of what is read to the end, in order."""
    return [(r.partition, r.offset) for records in reader(cluster, since).read() for r in records]


def append(cluster: FakeCluster, key: Partition, offset: int, record_ms: int) -> None:
    cluster.logs[key].append((offset, record_ms, 0))
    cluster.ends[key] = offset + 1


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_partitions_are_merged_by_time_and_each_keeps_its_order(at_once: int) -> None:
    with opened([(0, 10), (1, 40), (2, 20)], [(0, 15), (1, 30), (2, 50)], [], at_once=at_once) as cluster:
        assert places(cluster) == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]


def test_gaps_and_what_is_no_record_at_the_end() -> None:
    with opened([(0, 10), (5, 11)], [(3, 5)]) as cluster:
        cluster.ends[T0] = 9
        assert places(cluster) == [(1, 3), (0, 0), (0, 5)]


def test_records_that_come_while_it_reads_are_not_waited_for() -> None:
    with opened([(0, 10)]) as cluster:
        found = reader(cluster)
        append(cluster, T0, 1, 11)
        assert [r.offset for records in found.read() for r in records] == [0]


def test_since_beyond_every_record_reads_nothing() -> None:
    with opened([(0, 10)], [(0, 20)]) as cluster:
        assert places(cluster, since=20) == [(1, 0)]
        assert places(cluster, since=21) == []


def test_a_partition_far_ahead_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "QUEUE_MAX_RECORDS", 3)
    with opened([(n, n) for n in range(20)], [(n, 100 + n) for n in range(20)], at_once=3) as cluster:
        assert places(cluster) == [(0, n) for n in range(20)] + [(1, n) for n in range(20)]
        asked = [
            [each.partition for each in request.topics[0].partitions] for request in cluster.asked(FETCH.key)
        ]
        assert [0] in asked  # partition 1 was not asked for while it had three records that wait


def test_every_partition_is_asked_for_first_in_its_turn() -> None:
    with opened(*[[(n, n) for n in range(9)]] * 3, at_once=1) as cluster:
        cluster.gives_one = True
        assert len(places(cluster)) == 27
        first = [request.topics[0].partitions[0].partition for request in cluster.asked(FETCH.key)]
        assert first[:4] == [0, 1, 2, 0]


def test_follow_starts_at_the_end_and_goes_on() -> None:
    with opened([(0, 10)], [(0, 5)]) as cluster:
        records = reader(cluster, follow=True).read()
        append(cluster, T0, 1, 20)
        assert [r.offset for r in next(records)] == [1]
        append(cluster, T1, 1, 15)
        assert [(r.partition, r.offset) for r in next(records)] == [(1, 1)]


def test_follow_reads_partitions_that_are_added(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tail, "LOOK_S", 0)
    with opened([(0, 10)]) as cluster:
        span = tail.Span(follow=True)
        found = tail.Reader(cluster, [T0], span, lambda: 0, listed=lambda: partitions_of(cluster, "t"))
        cluster.logs[T1] = []
        append(cluster, T1, 0, 5)
        assert [(r.partition, r.offset) for r in next(found.read())] == [(1, 0)]
    assert capsys.readouterr().err == "tidelog: following t-1 too, which is new\n"


def test_a_count_that_ctrl_c_ends_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened([(0, 10), (1, 10)], at_once=1) as cluster:
        taken: list[int] = []

        def take(*_: object) -> None:
            taken.append(1)
            if len(taken) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(tail, "connected", lambda _: nullcontext(cluster))
        monkeypatch.setattr(tail, "progress", lambda *_, **__: nullcontext(take))
        done = CliRunner().invoke(tail.tail, ["t", "--count"], standalone_mode=False)
    assert isinstance(done.exception, CommandError)
    assert (done.exception.exit_code, done.stdout) == (INTERRUPTED, "")
    assert str(done.exception.message) == "stopped by Ctrl-C, after 2 records"


def test_follow_since_starts_with_what_is_there() -> None:
    with opened([(0, 10), (1, 20)]) as cluster:
        assert [r.offset for r in next(reader(cluster, since=15, follow=True).read())] == [1]


def test_follow_until_a_time_ends_when_it_has_passed() -> None:
    with opened([(0, 10), (1, 20)]) as cluster:
        found = reader(cluster, 0, True, until=1000).read()
        assert [r.offset for records in found for r in records] == [0, 1]


def test_a_silent_broker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(tail.time, "monotonic", lambda: next(now))
    with opened([(0, 10)]) as cluster:
        found = reader(cluster)
        cluster.logs[T0], cluster.ends[T0] = [], 0
        with pytest.raises(CommandError, match="has sent nothing for 30 s") as caught:
            list(found.read())
    assert caught.value.exit_code == UNREACHABLE


@pytest.mark.parametrize("follow", [True, False])
def test_a_topic_that_is_deleted_while_it_is_read_is_an_error(follow: bool) -> None:
    with opened([(0, 10), (1, 20)], at_once=1) as cluster:
        records = reader(cluster, 0, follow).read()
        assert [r.offset for r in next(records)] == [0]
        cluster.logs.clear()
        with pytest.raises(CommandError, match="topic t was deleted while it was read") as caught:
            next(records)
    assert caught.value.exit_code == FAILED


def value_of(record: Record) -> bytes:
    return (record.value or b"") + b" "


class Output:
    def __init__(self) -> None:
        self.buffer = io.BytesIO()


OUT_OF_ORDER = [(0, 10), (1, 20), (2, 30), (3, 15), (4, 29), (5, -1)]


@pytest.mark.parametrize(
    ("since", "until", "limit", "expected"),
    [
        (None, None, None, "0 1 2 3 4 5"),
        # 3 (at 15) and 5 (without a time) lie behind the first record at or after 20.
        (20, None, None, "1 2 4"),
        (20, 30, None, "1 4"),
        (None, 30, None, "0 1 3 4"),
        (20, 30, 1, "1"),
        (None, None, 3, "0 1 2"),
    ],
)
def test_a_range_of_times_is_exact_out_of_order(
    since: int | None, until: int | None, limit: int | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out: Any = Output()
    monkeypatch.setattr(tail.sys, "stdout", out)
    with opened(OUT_OF_ORDER, at_once=2) as cluster:
        output = tail._Output(value_of, first=limit)
        tail._print(reader(cluster, since), tail.Span(since, until), output, lambda count: None)
    assert out.buffer.getvalue().decode().strip() == expected


def offsets_in(cluster: FakeCluster, span: tail.Span) -> list[int]:
    found = tail.Reader(cluster, list(cluster.logs), span, lambda: 1000)
    return [r.offset for records in found.read() for r in records if span.has(r.timestamp)]


@pytest.mark.parametrize("at_once", [1, 2, 10])
def test_I6_a_range_by_append_time_has_what_was_appended_in_it_whatever_its_record_times(
    at_once: int,
) -> None:
    records = [(0, 900, 10), (1, 10, 20), (2, -1, 20), (3, 50, 30), (4, 20, 40)]
    with FakeCluster(records, at_once=at_once) as cluster:
        cluster.by_append = {"t"}
        assert offsets_in(cluster, tail.Span(20, 40, by_append=True)) == [1, 2, 3]
        assert offsets_in(cluster, tail.Span(15, None, by_append=True)) == [1, 2, 3, 4]
        assert offsets_in(cluster, tail.Span(None, 30, by_append=True)) == [0, 1, 2]
        assert offsets_in(cluster, tail.Span(20, 20, by_append=True)) == []
        assert offsets_in(cluster, tail.Span(50, 60, by_append=True)) == []
        # What a poll brings after the end has passed was appended later.
        assert offsets_in(cluster, tail.Span(20, 40, by_append=True, follow=True)) == [1, 2, 3]


def test_V10_reading_goes_on_beside_damage_and_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    six = [(n, n) for n in range(6)]
    with opened(six, six) as cluster:
        cluster.errors[T0, 2] = CORRUPT
        read = reader(cluster)
        found = [(r.partition, r.offset) for records in read.read() for r in records]
        assert sorted(found) == [(0, 0), (0, 1)] + [(1, n) for n in range(6)]
        assert read.damaged == [T0]
        error = capsys.readouterr().err
        assert error.startswith("tidelog: partition 0 of t is damaged at offset 2, and is not read further; ")
        assert error.endswith("continue there with --partition 0 --offset N\n")
    with opened(six) as alone:
        alone.errors[T0, 2] = CORRUPT
        assert offsets_in(alone, tail.Span(places={0: 4})) == [4, 5]
        assert capsys.readouterr().err == ""


def test_damage_after_the_end_of_a_range_is_nobodys_concern(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeCluster([(n, n, n) for n in range(6)], [(n, 100 + n, 0) for n in range(9)]) as cluster:
        cluster.by_append = {"t"}
        cluster.errors[T0, 3] = CORRUPT
        assert offsets_in(cluster, tail.Span(None, 3, by_append=True)) == [*range(3), *range(9)]
        assert capsys.readouterr().err == ""


def test_what_is_followed_ends_where_all_of_it_is_damaged() -> None:
    with opened([(0, 10), (1, 20)]) as cluster:
        cluster.errors[T0, 1] = CORRUPT
        found = reader(cluster, 0, follow=True).read()
        assert [r.offset for records in found for r in records] == [0]


def test_a_partition_that_the_broker_cannot_read_is_named_once_and_as_the_reason_of_a_stall(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tail, "STALLED_S", 0.01)
    named = "partition 0 of t: the broker cannot use its files"
    with opened([(0, 10)]) as cluster:
        cluster.errors[T0, 0] = ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(CommandError, match=f"has sent nothing for 0.01 s: {named}"):
            list(reader(cluster).read())
    assert capsys.readouterr().err.count(named) == 1


def test_an_offset_that_a_partition_does_not_have_is_refused() -> None:
    with opened([(0, 10), (1, 20)]) as cluster:
        with pytest.raises(CommandError, match=r"--offset 3: partition 0 of t starts at 0 and ends before 2"):
            offsets_in(cluster, tail.Span(places={0: 3}))
        assert offsets_in(cluster, tail.Span(places={0: 2})) == []


def test_an_offset_that_was_deleted_while_it_was_waited_for_is_where_the_log_begins() -> None:
    with opened([(0, 10), (1, 20), (5, 30)], at_once=1) as cluster:
        records = reader(cluster).read()
        assert [r.offset for r in next(records)] == [0]
        cluster.logs[T0] = cluster.logs[T0][2:]
        cluster.errors[T0, 1] = ErrorCode.OFFSET_OUT_OF_RANGE
        assert [r.offset for some in records for r in some] == [5]


def lasts(
    cluster: FakeCluster, count: int, span: tail.Span | None = None
) -> tuple[list[tuple[int, int]], int]:
    """Return (partition, offset) of the last records, and how many fetches that took."""
    found: list[Record] = []

    class Kept(tail._Output):
        def take(self, records: list[Record]) -> None:
            found.extend(records)

    tail._print_last(
        cluster, list(cluster.logs), span or tail.Span(), count, Kept(value_of), lambda count: None
    )
    return [(record.partition, record.offset) for record in found], len(cluster.asked(FETCH.key))


def test_the_last_records_are_found_from_the_end_by_time_across_partitions() -> None:
    with opened([(n, 2 * n) for n in range(900)], [(n, 2 * n + 1) for n in range(900)]) as cluster:
        found, fetches = lasts(cluster, 3)
        assert found == [(1, 898), (0, 899), (1, 899)]
        assert fetches == 1
        assert lasts(cluster, 3000)[0][:3] == [(0, 0), (1, 0), (0, 1)]


def test_the_last_records_are_found_though_offsets_before_the_end_are_missing() -> None:
    with opened([(0, 10), (1, 11), (2, 12), (500, 13)]) as cluster:
        cluster.ends[T0] = 800
        assert lasts(cluster, 3)[0] == [(0, 1), (0, 2), (0, 500)]
        assert lasts(cluster, 5)[0] == [(0, 0), (0, 1), (0, 2), (0, 500)]


def test_the_last_records_of_a_range_of_times_are_of_that_range() -> None:
    with opened(OUT_OF_ORDER, at_once=2) as cluster:
        assert lasts(cluster, 2, tail.Span(None, 30))[0] == [(0, 3), (0, 4)]
        assert lasts(cluster, 2, tail.Span(20, 30))[0] == [(0, 1), (0, 4)]
        assert lasts(cluster, 1, tail.Span(places={None: -3}))[0] == [(0, 5)]


def test_partitions_of_several_topics_are_merged_also_if_their_times_are_equal() -> None:
    with opened([(0, 10), (1, 20)]) as cluster:
        other = Partition("s", 0)
        cluster.logs[other], cluster.ends[other] = [(0, 10, 0), (1, 15, 0)], 2
        assert [(r.topic, r.offset) for some in reader(cluster).read() for r in some] == [
            ("s", 0), ("t", 0), ("s", 1), ("t", 1)
        ]  # fmt: skip


def test_the_last_records_of_a_sparse_partition_are_not_replaced_by_older_ones_of_another() -> None:
    with opened([(0, 1000), (1, 1001), (900, 1002)], [(n, n) for n in range(900)]) as cluster:
        assert lasts(cluster, 3)[0] == [(0, 0), (0, 1), (0, 900)]


def test_damage_is_named_once_though_the_last_records_are_looked_for_several_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with opened([(n, n) for n in range(41)]) as cluster:
        cluster.errors[T0, 39] = CORRUPT
        assert lasts(cluster, 4)[0] == [(0, 35), (0, 36), (0, 37), (0, 38)]
    assert capsys.readouterr().err.count("is damaged at offset 39") == 1


@pytest.mark.parametrize(
    ("grep", "value", "found"),
    [
        ("[\u00e4\u00f6]", "\u00e4".encode(), True),
        ("[\u00e4\u00f6]", "\u00fc".encode(), False),
        ("^.$", "\u00fc".encode(), True),
        ("(?i)\u00c4", "\u00e4".encode(), True),
        ("b$", b"\xffb", True),
        ("\udcff", b"\xff", True),  # as Python reads the byte FF of the command line
        ("[[a]", b"a", True),  # Python warns of it
    ],
)
def test_grep_compares_characters_and_finds_bytes_that_are_no_text(
    grep: str, value: bytes, found: bool
) -> None:
    matches = tail._matcher(None, grep)
    assert matches is not None
    assert matches(Record("t", 0, 0, 0, 0, None, value, [])) is found
    assert matches(Record("t", 0, 0, 0, 0, None, None, [("h", value)])) is found


@pytest.mark.parametrize("grep", ["(", "a{99999999999999999999}", "(" * 3000 + ")" * 3000])
def test_an_expression_that_cannot_be_used_is_one_line(grep: str) -> None:
    with pytest.raises(CommandError, match="--grep ") as caught:
        tail._matcher(None, grep)
    assert caught.value.exit_code == USAGE
    assert len(str(caught.value)) < 200


def test_a_header_without_a_value_is_shown_as_null_and_not_as_the_text_null() -> None:
    shown = choose("text")(Record("t", 0, 0, 0, 0, None, None, [("a", None), ("b", b"null")]))
    assert shown.endswith(b"\t\\N\t\\N\ta=\\N b=null\n")


def test_follow_says_from_where_once_the_ends_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened([(0, 10)]) as cluster:
        asked: list[int] = []

        def note(_: str) -> None:
            asked.append(len(cluster.asked(LIST_OFFSETS.key)))
            raise KeyboardInterrupt

        monkeypatch.setattr(tail, "connected", lambda _: nullcontext(cluster))
        monkeypatch.setattr(tail, "note", note)
        CliRunner().invoke(tail.tail, ["t", "--follow"])
    assert asked == [1]
