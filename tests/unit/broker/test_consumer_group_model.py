"""Consumer groups in any order of events: no partition has two owners, and in the end all are assigned evenly."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.groups import SESSION_MS, Client, World, drive, restore
from tidelog.broker.groups.assignors import ASSIGNORS
from tidelog.broker.groups.subscriptions import NAME_BYTES
from tidelog.protocol.error_codes import ErrorCode

NAMES = ("a", "ab", "b")
clients = st.integers(0, 4)


class Groups(RuleBasedStateMachine):
    """One group, with clients that join, leave, lose answers and die; changing topics; and a broker that is killed."""

    @initialize(is_lazy=st.booleans())
    def begin(self, is_lazy: bool) -> None:
        self.world = World()
        self.world.is_lazy = is_lazy
        self.group = self.world.group()
        self.clients: dict[int, Client] = {}
        self.made = 0
        self.restarts = 0
        self.topics_made = 0

    def client(self, number: int) -> Client | None:
        return self.clients.get(number)

    @rule(
        number=clients,
        topics=st.frozensets(st.sampled_from(NAMES)),
        regex=st.sampled_from(["", "a", "b"]),
        assignor=st.sampled_from([None, *ASSIGNORS]),
        is_static=st.booleans(),
    )
    def come(
        self, number: int, topics: frozenset[str], regex: str, assignor: str | None, is_static: bool
    ) -> None:
        if number not in self.clients:
            self.made += 1
            instance_id = f"i{number}" if is_static else None
            client = Client(
                f"m{number}-{self.made}", topics, regex=regex, assignor=assignor, instance_id=instance_id
            )
            self.clients[number] = client
            client.heartbeat(self.group)

    @rule(number=clients, is_full=st.booleans())
    def heartbeat(self, number: int, is_full: bool) -> None:
        if client := self.client(number):
            client.heartbeat(self.group, is_full=is_full)

    @rule(number=clients)
    def lose_an_answer(self, number: int) -> None:
        if client := self.client(number):
            drive(self.group.consumer_heartbeat(client.beat()), lambda _: None)

    @rule(number=clients, topics=st.frozensets(st.sampled_from(NAMES)))
    def subscribe_to_others(self, number: int, topics: frozenset[str]) -> None:
        if client := self.client(number):
            client.topics = topics
            client.heartbeat(self.group)

    @rule(number=clients, for_a_while=st.booleans())
    def leave(self, number: int, for_a_while: bool) -> None:
        client = self.clients.pop(number, None)
        if client is not None:
            is_static = client.said["instance_id"] is not None
            client.leave(self.group, -2 if for_a_while and is_static else -1)

    @rule(number=clients)
    def die(self, number: int) -> None:
        self.clients.pop(number, None)

    @rule(wait_ms=st.sampled_from([1000, 30_000, SESSION_MS]))
    def wait(self, wait_ms: int) -> None:
        self.world.pass_(wait_ms)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def create_or_grow(self, name: str, count: int) -> None:
        found = self.world.topics.get(name)
        if found is None or found[1] < count:
            self.topics_made += 1
            topic_id = b"%016d" % self.topics_made if found is None else found[0]
            self.world.topics[name] = (topic_id, count)
            self.group.topic_changed(name, is_new=found is None)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if self.world.topics.pop(name, None):
            self.group.topic_changed(name, is_new=False)

    @rule()
    def work(self) -> None:
        self.world.work()

    @precondition(lambda self: self.restarts < 3)
    @rule()
    def kill_the_broker(self) -> None:
        self.restarts += 1
        self.world.undone.clear()
        self.group = self.world.restarted()

    @rule(fails=st.booleans())
    def fill_the_disk(self, fails: bool) -> None:
        self.world.fails = fails

    @invariant()
    def nobody_has_what_another_one_has(self) -> None:
        had = [
            partition
            for client in self.clients.values()
            if client.member_id
            in self.group.members  # else it was fenced, and hears of it with its next heartbeat
            for topic, indexes in client.owns.items()
            for partition in ((topic, index) for index in indexes)
        ]
        assert len(had) == len(set(had))

    @invariant()
    def what_is_held_is_counted(self) -> None:
        members = sum(member.size_bytes for member in self.group.members.values())
        names = sum(map(len, self.group.regexes.values()))
        assert self.world.held_bytes == members + NAME_BYTES * names

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.fails = False
        # The dead are missed; the others go on until nothing moves any more.
        for _ in range(12):
            self.world.work()
            for client in list(self.clients.values()):
                client.heartbeat(self.group)
                self.world.work()
            self.world.pass_(SESSION_MS // 4)
        self.everybody_has_their_share()
        if not self.clients:
            # What could not be stored is stored with the next change.
            last = Client("last")
            last.heartbeat(self.group)
            self.world.work()
            last.leave(self.group)
        self.the_log_says_the_same()

    def everybody_has_their_share(self) -> None:
        owners = {
            (topic, index): client.member_id
            for client in self.clients.values()
            for topic, indexes in client.owns.items()
            for index in indexes
        }
        wanted = {
            (found[0], index)
            for name, found in self.world.topics.items()
            for index in range(found[1])
            if any(
                name in client.topics or (client.said["regex"] and name.startswith(client.said["regex"]))
                for client in self.clients.values()
            )
        }
        assert owners.keys() == wanted
        assert self.group.state.value == ("Stable" if self.clients else "Empty")
        before, epoch = dict(owners), self.group.epoch
        for client in self.clients.values():
            answer = client.heartbeat(self.group)
            self.world.work()
            assert answer is None or answer.code is ErrorCode.NONE
        assert self.group.epoch == epoch
        after = {
            (topic, index): client.member_id
            for client in self.clients.values()
            for topic, indexes in client.owns.items()
            for index in indexes
        }
        assert after == before

    def the_log_says_the_same(self) -> None:
        again = self.world.group()
        for key, value in self.world.log.items():
            restore(again, key, value)
        assert again.members.keys() == self.group.members.keys()
        for member_id, member in self.group.members.items():
            stored = again.members[member_id]
            assert (stored.subscription, stored.target, stored.current) == (
                member.subscription,
                member.target,
                member.current,
            )
        assert (again.epoch, again.target_epoch, again.regexes) == (
            self.group.epoch,
            self.group.target_epoch,
            self.group.regexes,
        )


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
