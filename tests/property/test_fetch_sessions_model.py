"""Fetch sessions under any order of events: each client knows what a full fetch would tell it, and all is given back.

Sessions that others take over, topics that come, grow and go, starts that move, two levels of isolation, clients that
wait, forget, lose answers and send an epoch again.
"""

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.broker.test_fetch_sessions import NumberedLog, World, fetch, forgotten
from tidelog.broker import fetch_sessions
from tidelog.broker.partition import Partition
from tidelog.broker.waiting import FetchWaiter
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FetchResponse

MOST = 4  # partitions of the topic
clients = st.integers(0, 2)
indexes = st.integers(0, MOST - 1)
ENDED = {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}


class Reader:
    """A client: what it wants from where, and what it knows."""

    def __init__(self) -> None:
        self.session_id = self.epoch = 0
        self.level = 0
        self.wanted: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self.knows: dict[int, tuple[int, ...]] = {}

    def news(self) -> dict[int, int]:
        """Return what it wants that its session does not know."""
        news = {index: offset for index, offset in self.wanted.items() if self.sent.get(index) != offset}
        self.sent = dict(self.wanted)
        return news

    def hears(self, response: FetchResponse) -> dict[int, int]:
        """Take note of an answer; return how many records came of which partition."""
        came = {}
        for topic in response.responses:
            for part in topic.partitions:
                numbers = part.high_watermark, part.last_stable_offset, part.log_start_offset
                self.knows[part.partition_index] = (part.error_code, *(() if part.error_code else numbers))
                if part.records:
                    came[part.partition_index] = len(part.records) // 10
        return came


class Sessions(RuleBasedStateMachine):
    """Three clients, two slots, one topic."""

    @initialize(partitions=st.integers(1, MOST), by_id=st.booleans())
    def begin(self, partitions: int, by_id: bool) -> None:
        self.world = World(partitions, max_incremental_fetch_session_cache_slots="2")
        self.by_id = by_id
        self.readers = [Reader() for _ in range(3)]
        self.all = self.now()
        for number in range(2):
            self.open(number, frozenset(range(MOST)), 0)

    def now(self) -> list[Partition]:
        topic = self.world.topics.by_name.get("t")
        found = [] if topic is None else [topic.partition(index) for index in range(MOST)]
        return [each for each in found if each is not None]

    def truth(self, reader: Reader) -> dict[int, tuple[int, ...]]:
        """Return what a full fetch would tell."""
        partitions = {each.index: each.log for each in self.now()}
        return {
            index: (ErrorCode.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
            if (log := partitions.get(index)) is not None
            else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
            for index in reader.wanted
        }

    def make(self, count: int, kept: list[Partition]) -> None:
        made = [
            *kept,
            *(Partition(index, cast(Any, NumberedLog())) for index in range(len(kept), count)),
        ]
        topic = SimpleNamespace(
            name="t", partition=lambda index: made[index] if 0 <= index < len(made) else None
        )
        self.world.topics.by_name["t"] = self.world.topics.by_id[b"t".ljust(16)] = topic
        self.world.topics.changes += 1
        self.all += made[len(kept) :]

    def judge(self, reader: Reader, came: dict[int, int]) -> None:
        assert {index: reader.knows.get(index) for index in reader.wanted} == self.truth(reader)
        for partition in self.now():
            offset = reader.wanted.get(partition.index)
            if offset is not None:
                due = max(0, partition.log.readable_end(reader.level) - offset)
                assert came.get(partition.index, 0) == due
                reader.wanted[partition.index] += due

    @rule(
        number=st.sampled_from([2, 2, 1]), wanted=st.frozensets(indexes, min_size=1), level=st.integers(0, 1)
    )
    def open(self, number: int, wanted: frozenset[int], level: int) -> None:
        self.close(number)
        self.readers[number].wanted = dict.fromkeys(sorted(wanted), 0)
        self.fetch_fully(number, level)

    def fetch_fully(self, number: int, level: int) -> None:
        """Fetch as clients do that have lost their session."""
        reader = self.readers[number]
        reader.level, reader.sent, reader.knows = level, {}, {}
        request = fetch("t", reader.news(), by_id=self.by_id, isolation_level=level)
        asked = fetch_sessions.Opening(self.world.sessions, f"a{number}", request, self.by_id)
        asked.wanted(request)
        response = self.world.made(asked.answer(self.world.read(request, self.by_id, 1000)))
        reader.session_id, reader.epoch = response.session_id, 1
        self.judge(reader, reader.hears(response))

    @rule(
        number=clients,
        more=st.frozensets(indexes),
        less=st.frozensets(indexes, max_size=2),
        level=st.integers(0, 1),
        is_lost=st.sampled_from([False] * 9 + [True]),
    )
    def poll(
        self, number: int, more: frozenset[int], less: frozenset[int], level: int, is_lost: bool
    ) -> None:
        """Fetch incrementally; what is both wanted and forgotten is forgotten, as in Kafka."""
        self.fetch(number, more, less, level, is_lost)

    @rule(number=clients)
    def poll_for_what_is_new(self, number: int) -> None:
        self.fetch(number, frozenset(), frozenset(), self.readers[number].level, False)

    def fetch(
        self, number: int, more: frozenset[int], less: frozenset[int], level: int, is_lost: bool
    ) -> None:
        reader = self.readers[number]
        if not reader.session_id:
            if reader.wanted:
                self.fetch_fully(number, level)
            return
        reader.level = level
        reader.wanted = {index: reader.wanted.get(index, 0) for index in (*reader.wanted, *more)}
        news = reader.news()
        gone = [index for index in less if index in reader.wanted]
        for index in gone:
            del reader.wanted[index], reader.sent[index]
            reader.knows.pop(index, None)
        forgets = forgotten(*gone)
        for each in forgets:
            each.topic_id = b"t".ljust(16)
        response = self.world.poll(
            reader.session_id,
            reader.epoch,
            news,
            by_id=self.by_id,
            isolation_level=level,
            forgotten_topics_data=forgets if gone else [],
        )
        if isinstance(response, ErrorCode):
            assert response in ENDED or (response == ErrorCode.NONE and not reader.wanted)
            reader.session_id = 0
            return
        if is_lost:
            # Its client does not know that, and sends the epoch again: the session is of no use to it any more.
            again = self.world.poll(reader.session_id, reader.epoch, by_id=self.by_id)
            assert again == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            reader.session_id = 0
            return
        reader.epoch = 1 if reader.epoch == fetch_sessions.LAST_EPOCH else reader.epoch + 1
        self.judge(reader, reader.hears(response))

    @rule(number=clients)
    def wait(self, number: int) -> None:
        """Park a fetch, which a later request, or the end of the session, answers."""
        reader = self.readers[number]
        if not reader.session_id:
            return
        begun = self.world.begin(
            reader.session_id, reader.epoch, reader.news(), by_id=self.by_id, isolation_level=reader.level
        )
        if isinstance(begun, ErrorCode):
            assert begun in ENDED
            reader.session_id = 0
            return
        asked, _ = begun
        asked.wait(FetchWaiter(self.world.parked, [], 1, 60_000, "answer", 100, asked.size))
        reader.epoch = 1 if reader.epoch == fetch_sessions.LAST_EPOCH else reader.epoch + 1

    @rule(number=st.sampled_from([2, 2, 1]))
    def close(self, number: int) -> None:
        self.world.sessions.close(self.readers[number].session_id)
        self.readers[number].session_id = 0

    @rule(number=clients)
    def come_to_the_last_epoch(self, number: int) -> None:
        session = self.world.sessions._sessions.get(self.readers[number].session_id)
        if session is not None:
            session.epoch = self.readers[number].epoch = fetch_sessions.LAST_EPOCH

    @rule(index=indexes, records=st.integers(1, 3), is_decided=st.booleans())
    def grow(self, index: int, records: int, is_decided: bool) -> None:
        for partition in self.now()[index : index + 1]:
            log = cast(NumberedLog, partition.log)
            log.high_watermark += records
            log.last_stable_offset = log.high_watermark if is_decided else log.last_stable_offset
            if partition.waiters.count:
                partition.waiters.grow(10 * records)

    @rule(index=indexes)
    def begin_later(self, index: int) -> None:
        for partition in self.now()[index : index + 1]:
            cast(NumberedLog, partition.log).log_start_offset = partition.log.high_watermark
            self.world.shared.start_moves += 1

    @rule(count=st.integers(1, MOST))
    def add_partitions(self, count: int) -> None:
        kept = self.now()
        if len(kept) < count:
            self.make(count, kept)

    @rule(is_made_anew=st.booleans(), count=st.integers(1, MOST))
    def delete(self, is_made_anew: bool, count: int) -> None:
        gone = self.now()
        for known in (self.world.topics.by_name, self.world.topics.by_id):
            known.clear()
        self.world.topics.changes += 1
        for partition in gone:
            partition.release()
        if is_made_anew:
            self.make(count, [])
        # Who reads on where another topic was begins anew there, as clients do that are told of an offset.
        for reader in self.readers:
            reader.wanted = dict.fromkeys(reader.wanted, 0)

    @rule(minutes=st.sampled_from([1, 3]))
    def pass_(self, minutes: int) -> None:
        self.world.clock.advance(minutes=minutes)
        self.world.loop.run()

    @rule()
    def turn(self) -> None:
        self.world.loop.run()

    @invariant()
    def what_is_held_is_what_is_kept(self) -> None:
        sessions = self.world.sessions
        assert sessions.held_bytes == sum(each.held_bytes for each in sessions._sessions.values())
        assert len(sessions) <= 2

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for session_id in list(self.world.sessions._sessions):
            self.world.sessions.close(session_id)
        self.world.loop.run()
        assert (self.world.sessions.held_bytes, len(self.world.sessions)) == (0, 0)
        assert [each.waiters.count for each in self.all] == [0] * len(self.all)
        assert len(self.world.parked) == 0


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
