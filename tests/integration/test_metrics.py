"""What is counted, what a scrape reads, and its text, which Prometheus's own parser judges."""

import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from scripts import docs

from tests.support import strategies
from tests.support.builders import produce_request
from tests.support.group_member import GroupMember, delete_topic
from tests.support.logs import NOW, batch, fill, new_shared, open_log
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.broker.broker import Broker
from tidelog.broker.cleaners import Figures
from tidelog.broker.metrics import collect, table
from tidelog.broker.metrics.collect import Collector
from tidelog.broker.metrics.exposition import heading, histogram, labels, text
from tidelog.broker.metrics.health import health
from tidelog.broker.metrics.looks import Look, Looks
from tidelog.broker.tallies import BOUNDS_S, Net, Tallies, Times
from tidelog.broker.work import LONG, Coro, Stopping
from tidelog.cli.main import app
from tidelog.cli.text import called
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from tidelog.protocol.messages.produce import (
    PRODUCE,
)
from tidelog.protocol.registry import APIS
from tidelog.protocol.topic_names import OFFSETS_TOPIC
from tidelog.protocol.wire.error_codes_in import reporting_errors
from tidelog.protocol.wire.schema import fields_of
from tidelog.storage import files
from tidelog.storage.summary import Damage
from tidelog.storage.tally import Tally

NET = Net(connections=3, connections_max=9, admitted=7, refused=2, bad_requests=1, request_bytes=99)
Counted = Callable[..., Awaitable[tuple[Served, Client]]]
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(exposed: str) -> Values:
    """Return every sample by its name and labels, none of which may come twice."""
    found: Values = {}
    for family in text_string_to_metric_families(exposed):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found: Values, name: str, **with_labels: str) -> float | None:
    return found.get((name, tuple(sorted(with_labels.items()))))


def all_of(work: Coro[Any], stop_after: int = 1 << 30) -> Any:
    """Do work to its end, or tell it after some steps that the broker stops."""
    steps = 0
    try:
        work.send(None)
        while True:
            steps += 1
            if steps > stop_after:
                work.throw(Stopping())
            work.send(LONG)
    except StopIteration as end:
        return end.value
    except Stopping:
        return None


def scraped(broker: Broker) -> Values:
    assert broker.tallies is not None
    pieces = all_of(Collector(broker, broker.tallies, lambda: NET).scrape())
    return parsed(b"".join(pieces).decode())


@pytest.fixture
def counted(serve: Serve, unused_tcp_port: int) -> Counted:
    async def counted(**options: str) -> tuple[Served, Client]:
        """Serve a topic t, and count; return a client, too."""
        served = await serve(http_port=str(unused_tcp_port), **options)
        client = await served.connect()
        await client.make_topic("t")
        return served, client

    return counted


# -- counting ----------------------------------------------------------------------------------------------------


def errors_in(message: Any) -> list[int]:
    """List the error codes of a message, by walking all of it."""
    found = []
    for field in fields_of(type(message)):
        held = getattr(message, field.name)
        if field.name == "error_code":
            found += [held] if held else []
        for each in held if isinstance(held, list) else [held]:
            if hasattr(type(each), "__wire_fields__"):
                found += errors_in(each)
    return found


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@settings(max_examples=20)
@given(data=st.data())
def test_every_error_code_in_an_answer_is_found(api: Any, data: st.DataObject) -> None:
    message = data.draw(strategies.messages(api.response, api.max_version))
    counted: list[int] = []
    encode = reporting_errors(api.response, lambda *given: given, counted.append)
    assert encode(7, message) == (7, message)
    assert counted == errors_in(message)


def test_times_are_counted_by_their_bounds() -> None:
    times = Times()
    for took_s in (0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, BOUNDS_S[-1], BOUNDS_S[-1] + 1):
        times.add(took_s)
    assert (times.counts[0], times.counts[1], times.counts[-2], times.counts[-1]) == (2, 1, 1, 1)
    assert times.sum_s == pytest.approx(BOUNDS_S[0] * 2.01 + BOUNDS_S[-1] * 2 + 1)


def test_a_flush_that_fails_is_timed_too() -> None:
    tallies = Tallies()

    def fail(_logs: object) -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        tallies.timed_flush(fail)([])
    assert tallies.timed_flush(len)([1, 2]) == 2
    assert sum(tallies.commits.counts) == 2


async def test_nothing_is_counted_where_nobody_asked_for_it(served: Served) -> None:
    await (await served.connect()).make_topic("t")
    assert served.broker.tallies is None
    assert served.server.http_address is None


async def test_what_was_asked_and_how_it_went(counted: Counted) -> None:
    """Answered at once, waited for, with errors, and not at all: each is counted, and in time."""
    served, client = await counted()
    await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    sent = produce_request("t", batch([NOW, NOW + 5]))
    response = await client.ask(PRODUCE, 9, sent)
    assert response.responses[0].partition_responses[0].error_code == 0
    for _ in range(2):
        await client.ask(PRODUCE, 9, produce_request("t", batch([NOW]), partition=5))
    client.send(PRODUCE, 9, 1, produce_request("t", batch([NOW]), acks=0))
    await client.fetch("t", 3, max_wait_ms=60)
    found = scraped(served.broker)
    assert value(found, "tidelog_requests_total", api="Produce") == 4
    assert value(found, "tidelog_request_seconds_count", api="Produce") == 4
    assert value(found, "tidelog_request_seconds_bucket", api="Produce", le="+Inf") == 4
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    assert value(found, "tidelog_request_errors_total", api="Produce", error=error) == 2
    assert sum(name == "tidelog_request_errors_total" for name, _ in found) == 1
    waited = value(found, "tidelog_request_seconds_sum", api="Fetch")
    assert waited is not None
    assert waited >= 0.05, "the time that a fetch waited is in its time"
    assert value(found, "tidelog_requests_total", api="ListOffsets") is None
    received = value(found, "tidelog_request_bytes_total", api="Produce") or 0
    assert received > 4 * len(batch([NOW]))
    assert (value(found, "tidelog_response_bytes_total", api="Fetch") or 0) > 40
    assert (value(found, "tidelog_response_bytes_total", api="ApiVersions") or 0) > 40, "an answer at once"
    assert value(found, "tidelog_commit_seconds_count") == 1
    tallies = served.broker.tallies
    assert tallies is not None
    assert sum(tallies.commits.counts) == 1


# -- what a scrape reads -----------------------------------------------------------------------------------------


async def test_a_scrape_tells_of_topics_and_partitions(counted: Counted) -> None:
    served, client = await counted(num_partitions="2", group_state_max_bytes=str(1 << 25))
    now_ms = served.broker.clock.now_ms()
    for _ in range(3):
        await client.ask(PRODUCE, 9, produce_request("t", batch([now_ms - 5000] * 2)))
    log = log_of(served.broker, "t")
    found = scraped(served.broker)
    for name, expected in {
        "topics": 1, "partitions": 2, "segments": 2, "log_bytes": log.size_bytes, "logs_refusing_writes": 0,
        "connections": 3, "connections_accepted_total": 7, "connections_refused_total": 2, "bad_requests_total": 1,
        "connections_max": 9, "waiting_fetches": 0, "disk_full": 0, "damaged_ranges": 0, "recovery_cut_bytes": 0,
    }.items():  # fmt: skip
        assert value(found, f"tidelog_{name}") == expected, name
    for name, expected in {
        "partitions": 2,
        "records_total": 6,
        "segments": 2,
        "bytes": log.size_bytes,
    }.items():
        assert value(found, f"tidelog_topic_{name}", topic="t") == expected, name
    for name, expected in {"start_offset": 0, "end_offset": 6, "bytes": log.size_bytes}.items():
        assert value(found, f"tidelog_partition_{name}", topic="t", partition="0") == expected, name
    assert value(found, "tidelog_held_bytes", kind="requests") == 99
    config = served.broker.config
    assert config.group_state_max_bytes != config.fetch_session_max_bytes
    for kind, bound in {
        "fetches": 64 << 20,
        "fetch_sessions": config.fetch_session_max_bytes,
        "groups": config.group_state_max_bytes,
    }.items():
        assert value(found, "tidelog_held_bytes_max", kind=kind) == bound, kind
    assert (value(found, "process_resident_memory_bytes") or 0) > 1 << 20
    assert (value(found, "process_open_fds") or 0) > 3


async def test_S57_the_time_from_create_to_append_of_the_last_record_is_told(counted: Counted) -> None:
    served, client = await counted(num_partitions="2")
    served.broker.clock.hold(NOW)
    await client.ask(PRODUCE, 9, produce_request("t", batch([NOW - 90_000, NOW - 5_000])))
    found = scraped(served.broker)
    name = "tidelog_partition_append_delay_seconds"
    assert value(found, name, topic="t", partition="0") == 5
    assert value(found, name, topic="t", partition="1") is None


async def test_S56_the_lag_of_a_group_is_told_in_records_and_in_time(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = await counted()
    for number in range(4):
        served.broker.clock.hold(NOW + number * 10_000)
        await client.ask(PRODUCE, 9, produce_request("t", batch([NOW])))
    committed = [('a "b"\\', "t", 0, 1), ("done", "t", 0, 4), ("gone", "u", 0, 1), ("gone", "t", 7, 1)]
    committed.append(("ahead", "t", 0, 9))
    monkeypatch.setattr(
        served.broker.groups, "all_committed", lambda: iter([*committed, ("more", "t", 0, 1)])
    )
    monkeypatch.setattr(collect, "MOST_LAGS", len(committed))
    found = scraped(served.broker)
    behind = {"group": 'a "b"\\', "topic": "t", "partition": "0"}
    assert value(found, "tidelog_group_lag_records", **behind) == 3
    assert value(found, "tidelog_group_lag_seconds", **behind) == 20
    done, ahead = {**behind, "group": "done"}, {**behind, "group": "ahead"}
    assert value(found, "tidelog_group_lag_records", **done) == 0
    assert value(found, "tidelog_group_lag_seconds", **done) == 0
    assert value(found, "tidelog_group_past_end_records", **done) is None
    # More than the log has: it was cut, or the topic was made again.
    assert value(found, "tidelog_group_past_end_records", **ahead) == 5
    assert value(found, "tidelog_group_lag_records", **ahead) is None
    assert value(found, "tidelog_group_lag_seconds", **ahead) is None
    assert not any({("group", "gone"), ("group", "more")} & set(names) for _, names in found)


async def test_S56_S57_a_lag_and_a_delay_are_of_records_that_are_there(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = await counted()
    for number in range(4):
        served.broker.clock.hold(NOW + number * 10_000)
        await client.ask(PRODUCE, 9, produce_request("t", batch([NOW])))
    committed = [("behind", "t", 0, 1), ("before all", "t", 0, -7)]
    monkeypatch.setattr(served.broker.groups, "all_committed", lambda: iter(committed))
    assert served.broker.tallies is not None
    collector = Collector(served.broker, served.broker.tallies, lambda: NET)

    def lags_and_delay() -> list[tuple[float | None, float | None]]:
        found = parsed(b"".join(all_of(collector.scrape())).decode())
        delay = value(found, "tidelog_partition_append_delay_seconds", topic="t", partition="0")
        names = [{"group": group, "topic": "t", "partition": "0"} for group, *_ in committed]
        lags = ("tidelog_group_lag_records", "tidelog_group_lag_seconds")
        return [
            *((value(found, lags[0], **each), value(found, lags[1], **each)) for each in names),
            (delay, 0),
        ]

    assert lags_and_delay() == [(3, 20), (4, 30), (30, 0)]
    log = log_of(served.broker, "t")
    log.advance_start(2)
    assert lags_and_delay() == [(2, 10), (2, 10), (30, 0)]
    log.advance_start(4)
    assert lags_and_delay() == [(0, 0), (0, 0), (None, 0)]


async def test_what_a_scrape_tells_of_groups_is_bounded_and_what_it_leaves_out_is_counted(
    counted: Counted, serve: Serve, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, _ = await counted(num_partitions="3")

    def lags() -> tuple[list[tuple[str, int]], float | None]:
        found = scraped(served.broker)
        groups = Counter(dict(names)["group"] for name, names in found if name == "tidelog_group_lag_records")
        return sorted(groups.items()), value(found, "tidelog_group_lags_left_out")

    longest, too_long = "g" * collect.MOST_GROUP_NAME, "h" * (collect.MOST_GROUP_NAME + 1)
    members = [GroupMember(await served.connect(), group) for group in (too_long, longest)]
    for member in members:
        assert await member.commit("t", 0, 0, 0) == [0] * 3
    assert lags() == ([(longest, 3)], 3)
    monkeypatch.setattr(collect, "MOST_LAGS", 5)
    assert lags() == ([(longest, 2)], 4)
    await served.stop()
    served = await serve(http_port=str(unused_tcp_port))
    await until(lambda: not served.broker.groups.is_loading)
    groups, left_out = lags()
    assert left_out == 6 - sum(count for _, count in groups)
    client = await served.connect()
    await client.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[too_long]))
    assert lags() == ([(longest, 3)], 0)


async def test_what_was_committed_again_or_is_gone_is_not_counted_as_left_out(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "MOST_LAGS", 2)
    served, client = await counted(num_partitions="3")
    member = GroupMember(client)
    for offset in (5, 6):
        assert await member.commit("t", offset, offset, offset) == [0] * 3
    assert value(scraped(served.broker), "tidelog_group_lags_left_out") == 1
    await delete_topic(client, OFFSETS_TOPIC)
    await until(lambda: not served.broker.groups.offsets)
    assert await member.commit("t", 7, 7, 7) == [0] * 3
    assert value(scraped(served.broker), "tidelog_group_lags_left_out") == 1


@pytest.mark.parametrize(
    ("bound", "topics_told", "partitions_told"),
    [("MOST_PARTITIONS", True, False), ("MOST_TOPICS", False, True)],
)
async def test_of_very_many_less_is_told(
    serve: Serve,
    unused_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    topics_told: bool,
    partitions_told: bool,
) -> None:
    served = await serve(http_port=str(unused_tcp_port))
    client = await served.connect()
    for name in ("t", "u"):
        await client.make_topic(name)
        await client.ask(PRODUCE, 9, produce_request(name, batch([NOW])))
    monkeypatch.setattr(collect, bound, 1)
    found = scraped(served.broker)
    names = {name for name, _ in found}
    assert ("tidelog_topic_records_total" in names) == topics_told
    assert ("tidelog_partition_end_offset" in names) == partitions_told
    assert ("tidelog_partition_append_delay_seconds" in names) == partitions_told
    assert value(found, "tidelog_partitions") == 2
    monkeypatch.setattr(collect, bound, 2)
    names = {name for name, _ in scraped(served.broker)}
    assert {"tidelog_topic_records_total", "tidelog_partition_end_offset"} <= names


async def test_a_scrape_ends_at_its_next_step_where_the_broker_stops(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, _ = await counted(num_partitions="5")
    monkeypatch.setattr(collect, "STEP_LOGS", 1)
    tallies = served.broker.tallies
    assert tallies is not None
    collector = Collector(served.broker, tallies, lambda: NET)
    for steps in range(8):
        assert all_of(collector.scrape(), stop_after=steps) is None
    assert all_of(collector.scrape()) is not None


async def test_a_log_that_takes_no_writes_is_counted_and_named(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, _ = await counted(num_partitions="3")
    broker = served.broker

    def answer(is_stopping: bool = False) -> tuple[int, dict[str, Any]]:
        return cast("tuple[int, dict[str, Any]]", all_of(cast(Any, health(broker, is_stopping))))

    status, well = answer()
    assert (status, well["status"], well["refused"], well["partitions"]) == (200, "ok", [], 3)
    assert answer(is_stopping=True)[0] == 503
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.broker.metrics.health.STEP_LOGS", 1)
        assert sum(1 for _ in health(broker, False)) == 3, "it gives way"
    # The maintenance thread looks each second whether a log takes writes again, and the disk has space.
    monkeypatch.setattr(broker.logs.disk, "look", lambda: None)
    log = log_of(broker, "t", 1)
    remedies: list[None] = []

    def repair() -> None:
        if not remedies:
            raise OSError("not repaired yet")

    log.health.fail("a flush failed", repair)
    status, ill = answer()
    assert (status, ill["status"]) == (503, "refusing writes")
    assert ill["refused"] == [{"log": "t-1", "reason": "a flush failed", "is_read": True}]
    assert value(scraped(broker), "tidelog_logs_refusing_writes") == 1
    remedies.append(None)
    log.mend()
    assert answer()[1]["status"] == "ok"
    broker.logs.disk.is_full = True
    status, full = answer()
    assert (status, full["refusing_writes"]) == (503, 3)
    assert "is full" in full["refused"][0]["reason"]
    monkeypatch.setattr("tidelog.broker.metrics.health.MOST_NAMED", 2)
    assert (answer()[1]["refusing_writes"], len(answer()[1]["refused"])) == (3, 2)
    assert value(scraped(broker), "tidelog_disk_full") == 1
    broker.logs.disk.is_full = False


async def test_damage_is_named_and_leaves_the_broker_healthy(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, _ = await counted()
    log_of(served.broker, "t").active.summary.damage = (Damage(10, 25, 7), Damage(30, 31, 9))
    name = f"{0:020d}.log"
    status, answer = cast("tuple[int, dict[str, Any]]", all_of(cast(Any, health(served.broker, False))))
    assert (status, answer["status"], answer["damaged_ranges"]) == (200, "ok", 2)
    first = {"log": "t-0", "range": f"{name}@10-25", "next_offset": 7}
    assert answer["damaged"] == [first, {"log": "t-0", "range": f"{name}@30-31", "next_offset": 9}]
    monkeypatch.setattr("tidelog.broker.metrics.health.MOST_NAMED", 1)
    _, fewer = cast("tuple[int, dict[str, Any]]", all_of(cast(Any, health(served.broker, False))))
    assert (fewer["damaged_ranges"], fewer["damaged"]) == (2, [first])
    monkeypatch.setattr("tidelog.cli.health._ask", lambda _: fewer)
    ended = CliRunner().invoke(app, ["health"])
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[1:] == [
        f"t-0: {name}@10-25 is damaged, and reads of it fail; the next offset is 7",
        f"and 1 damaged range more; {called()} fsck lists all",
    ]


async def test_a_scrape_says_how_full_the_disk_is(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    served, _ = await counted()
    monkeypatch.setattr(files, "space_bytes", lambda folder: (1000, 10))
    found = scraped(served.broker)
    assert (value(found, "tidelog_disk_bytes"), value(found, "tidelog_disk_free_bytes")) == (1000, 10)

    def fails(_folder: Path) -> tuple[int, int]:
        raise OSError

    monkeypatch.setattr(files, "space_bytes", fails)
    assert value(scraped(served.broker), "tidelog_disk_free_bytes") is None


def test_damage_is_counted(tmp_path: Path) -> None:
    damaged = [SimpleNamespace(start=10, end=25), SimpleNamespace(start=30, end=31)]
    segments = [
        SimpleNamespace(size=100, summary=SimpleNamespace(damage=damaged)),
        SimpleNamespace(size=11, summary=SimpleNamespace(damage=())),
    ]
    sums: Counter[table.Metric] = Counter()
    assert collect._add(sums, cast(Any, SimpleNamespace(segments=segments, takes_writes=True))) == 111
    assert (sums[table.DAMAGED_RANGES], sums[table.DAMAGED_BYTES], sums[table.SEGMENTS]) == (2, 16, 2)


# -- what takes a look -------------------------------------------------------------------------------------------


def test_only_what_changed_is_looked_for_again() -> None:
    looked: list[str] = []

    def at(key: str, state: int) -> Look:
        return Look(key, state, lambda: looked.append(key) or float(state))  # type: ignore[func-returns-value]

    looks = Looks(most_s=10)
    assert all_of(looks.look([at("a", 1), at("b", 2)])) == [1, 2]
    assert all_of(looks.look([at("a", 1), at("b", 3)])) == [1, 3]
    assert looked == ["a", "b", "b"]
    assert all_of(looks.look([at("b", 3)])) == [3]
    assert all_of(looks.look([at("a", 1)])) == [1]
    assert looked == ["a", "b", "b", "a"], "what is not there any more is not remembered"


def test_those_that_the_time_did_not_suffice_for_come_first_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0

    def find() -> float:
        nonlocal now_s
        now_s += 1
        return now_s

    monkeypatch.setattr("tidelog.broker.metrics.looks.monotonic", lambda: now_s)
    looks = Looks(most_s=2)
    wanted = [Look(key, 0, find) for key in range(5)]
    assert all_of(looks.look(wanted)) == [1, 2, None, None, None]
    assert all_of(looks.look(wanted)) == [1, 2, 3, 4, None]
    changed = [Look(key, 1, find) for key in range(5)]
    assert all_of(looks.look(changed)) == [6, 2, 3, 4, 5], "what is not reached keeps what was found before"


# -- the storage's counts ----------------------------------------------------------------------------------------


def test_what_retention_deletes_is_counted(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=100, retention_ms=1000, segment_min_ms=0)
    fill(log, [[NOW], [NOW], [NOW]])
    segments, size_bytes = len(log.segments), log.size_bytes
    assert segments > 1
    from tidelog.storage.upkeep import enforce_retention

    enforce_retention(log, NOW + 10_000)
    tally = log.shared.tally
    assert tally.deleted_segments == segments
    assert tally.deleted_bytes == size_bytes


def test_recovery_counts_from_several_threads() -> None:
    tally = Tally()

    def count() -> None:
        for _ in range(2000):
            tally.read(3)
            tally.cut(1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tally.read_bytes, tally.cut_bytes) == (24_000, 8_000)
    assert new_shared(Path()).tally.read_bytes == 0


# -- the text ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False)), unique_by=lambda each: each[0]))
def test_any_label_and_number_is_what_prometheus_reads(samples: list[tuple[str, float]]) -> None:
    metric = table.Metric("m_total", table.COUNTER, "What \\it says, 100 % of it.", ("name",))
    exposed = text(metric, [(labels(metric.labels, [name]), number) for name, number in samples])
    assert parsed(exposed) == {("m_total", (("name", name),)): number for name, number in samples}


def test_of_what_nobody_counted_there_is_no_heading() -> None:
    assert text(table.LAG_RECORDS, []) == ""
    assert histogram(table.LATENCY, BOUNDS_S, []) == ""


def test_a_histogram_is_what_prometheus_reads() -> None:
    metric = table.Metric("h", table.HISTOGRAM, "h", ("api",))
    exposed = histogram(metric, (0.5, 1.0), [(("A",), [1, 2, 4], 9.5)])
    assert parsed(exposed) == {
        ("h_bucket", (("api", "A"), ("le", "0.5"))): 1,
        ("h_bucket", (("api", "A"), ("le", "1.0"))): 3,
        ("h_bucket", (("api", "A"), ("le", "+Inf"))): 7,
        ("h_count", (("api", "A"),)): 7,
        ("h_sum", (("api", "A"),)): 9.5,
    }
    assert histogram(metric, (0.5, 1.0), []) == ""


def test_every_metric_has_a_name_as_prometheus_wants_it() -> None:
    names = [metric.name for metric in table.METRICS]
    assert len(set(names)) == len(names)
    for metric in table.METRICS:
        assert metric.name.startswith("tidelog_")
        assert metric.name.endswith("_total") == (metric.kind == table.COUNTER), metric.name
        assert "\n" not in metric.doc
        assert metric.doc.endswith(".")
        (family,) = text_string_to_metric_families(heading(metric))
        assert family.documentation == metric.doc


async def test_every_metric_of_the_table_is_told_and_no_other(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = await counted()
    await client.ask(PRODUCE, 9, produce_request("t", batch([NOW])))
    await client.ask(PRODUCE, 9, produce_request("t", batch([NOW]), partition=9))
    monkeypatch.setattr(
        served.broker.groups, "all_committed", lambda: iter([("g", "t", 0, 0), ("g", "t", 0, 9)])
    )
    log = log_of(served.broker, "t")
    monkeypatch.setattr(served.broker.cleaners, "failing", lambda: [(log, "why")])
    monkeypatch.setattr(served.broker.cleaners, "figures", lambda: Figures(began_ms=0))
    tallies = served.broker.tallies
    assert tallies is not None
    exposed = b"".join(all_of(Collector(served.broker, tallies, lambda: NET).scrape())).decode()
    kinds = {line.split()[2]: line.split()[3] for line in exposed.splitlines() if line.startswith("# TYPE")}
    ours = {name: kind for name, kind in kinds.items() if not name.startswith("process_")}
    assert ours == {metric.name: metric.kind for metric in table.METRICS}
    held = set(re.findall(r'^tidelog_held_bytes\{kind="(\w+)"', exposed, re.MULTILINE))
    assert held == set(re.findall(r"`(\w+)`", table.HELD.doc))
    process = {name for name in kinds if name.startswith("process_")}
    assert all(f"`{name}`" in docs.metrics_page() for name in process)
