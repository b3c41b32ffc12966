"""What the members of a group read, all together: as if it were found out anew, at the cost of what changes."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.groups.subscriptions import TopicsRead

NAMES = ["a", "b", "c", "d"]

some_names = st.frozensets(st.sampled_from(NAMES))
founds = st.none() | st.tuples(st.binary(min_size=16, max_size=16), st.integers(1, 9))
changes = st.lists(
    st.one_of(
        st.tuples(st.just("member"), st.integers(0, 3), some_names),
        st.tuples(st.just("regex"), st.sampled_from("xy"), st.none() | some_names),
        st.tuples(st.just("topic"), st.sampled_from(NAMES), founds),
        st.tuples(st.just("ask"), st.just(0), st.just(None)),
    ),
    max_size=20,
)


@given(changes=changes)
def test_what_is_kept_is_what_would_be_found_anew(changes: list[tuple]) -> None:  # type: ignore[type-arg]
    topics = {"a": (b"a" * 16, 1), "b": (b"b" * 16, 2)}
    subscribed = dict.fromkeys(range(4), frozenset[str]())
    matched: dict[str, frozenset[str]] = {}
    kept = TopicsRead(topics.get)
    for what, key, value in changes:
        if what == "member":
            kept.count(value, 1)
            kept.count(subscribed[key], -1)
            subscribed[key] = value
        elif what == "regex":
            kept.match(key, value)
            matched = {**matched, key: value}
        elif what == "topic":
            # No two topics have one id.
            topics[key] = value and (key.encode() + value[0][1:], value[1])
            kept.topic_changed(key)
        else:
            assert kept.counts == dict(
                topics[name] for name in NAMES if name in kept and topics.get(name) is not None
            )
        anew = TopicsRead(topics.get)
        for regex in sorted(matched, reverse=True):
            anew.match(regex, matched[regex])
        for names in reversed(subscribed.values()):
            anew.count(names, 1)
        read = frozenset().union(*subscribed.values(), *filter(None, matched.values()))
        assert {name for name in NAMES if name in kept} == read
        for names in subscribed.values():
            for regex in ("", "x", "y"):
                wanted = names | (matched.get(regex) or frozenset())
                ids = {found[0] for name in wanted if (found := topics.get(name)) is not None}
                assert kept.ids_of(names, regex) == anew.ids_of(names, regex) == ids
        assert (kept.hash, kept.counts) == (anew.hash, anew.counts)


def test_the_hash_is_another_one_where_a_topic_is_and_fits_its_record() -> None:
    topics = {"a": (b"a" * 16, 1), "b": (b"b" * 16, 1)}
    reading = TopicsRead(topics.get)
    reading.count(frozenset(["a", "b", "c"]), 1)
    hashes = [reading.hash]
    for name, found in (("a", (b"a" * 16, 2)), ("a", (b"x" * 16, 2)), ("c", (b"c" * 16, 1)), ("c", None)):
        topics[name] = found  # type: ignore[assignment]
        assert reading.topic_changed(name)
        hashes.append(reading.hash)
    assert len(set(hashes)) == 4
    assert hashes[4] == hashes[2], "as it was before"
    assert all(-(1 << 63) <= each < 1 << 63 for each in hashes)
    assert not reading.topic_changed("d")


def test_a_change_costs_what_changes_however_much_the_others_read() -> None:
    """Where 25 members read 16,000 topics each, every change of one of them took a second of the event loop."""
    looked_at: list[str] = []

    def topic(name: str) -> tuple[bytes, int]:
        looked_at.append(name)
        return name.encode().rjust(16), 1

    reading = TopicsRead(topic)
    much = [frozenset(f"{number}-{place}" for place in range(1000)) for number in range(10)]
    for names in much:
        reading.count(names, 1)
        assert (reading.hash, len(reading.ids_of(names, ""))) != (0, 0)
    looked_at.clear()
    little = frozenset(["little"])
    reading.count(little, 1)
    assert (len(reading.counts), len(reading.ids_of(little, ""))) == (10_001, 1)
    assert [len(reading.ids_of(names, "")) for names in much] == [1000] * 10
    assert (reading.topic_changed("0-0"), len(reading.counts)) == (True, 10_001)
    reading.count(little, -1)
    assert (len(reading.counts), looked_at) == (10_000, ["little", "little", "0-0"])


def test_a_topic_that_changes_has_no_others_looked_for() -> None:
    """Of members that read much this would take the event loop a tenth of a second for each change."""
    topics = {name: (name.encode() * 16, 1) for name in NAMES}
    asked: list[str] = []

    def topic(name: str) -> tuple[bytes, int] | None:
        asked.append(name)
        return topics.get(name)

    reading = TopicsRead(topic)
    sets = [frozenset("ab"), frozenset("abc")]
    for names in sets:
        reading.count(names, 1)
    for found in ((b"a" * 16, 2), None, (b"n" * 16, 1)):
        ids = [reading.ids_of(names, "") for names in sets]
        asked.clear()
        topics.pop("a")
        if found is not None:
            topics["a"] = found
        assert reading.topic_changed("a")
        after = [reading.ids_of(names, "") for names in sets]
        new = frozenset() if found is None else {found[0]}
        assert after == [(each - {b"a" * 16, b"n" * 16}) | new for each in ids]
        assert (reading.counts.keys(), asked) == (frozenset().union(*after), ["a"])
        topics.setdefault("a", (b"?", 0))
