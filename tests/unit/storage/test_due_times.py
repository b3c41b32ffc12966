"""When each of many things is due: the order, what is replaced, and what is forgotten."""

from tidelog.storage.due_times import DueTimes


def test_what_is_due_is_taken_in_order_and_forgotten() -> None:
    due: DueTimes[str] = DueTimes()
    for key, at_ms in (("late", 30), ("early", 10), ("middle", 20)):
        due.put(key, at_ms)
    assert due.next_ms() == 10
    assert due.take(9) == []
    assert due.take(20) == ["early", "middle"]
    assert (due.take(20), due.next_ms()) == ([], 30)


def test_the_time_that_was_put_last_counts_and_a_key_is_due_once() -> None:
    due: DueTimes[str] = DueTimes()
    for at_ms in (10, 30, 20):
        due.put("a", at_ms)
    assert due.next_ms() == 20
    assert due.take(19) == []
    assert due.take(100) == ["a"]
    assert due.next_ms() is None


def test_hastening_makes_nothing_due_later() -> None:
    due: DueTimes[str] = DueTimes()
    due.hasten("a", 20)
    due.hasten("a", 30)
    assert due.next_ms() == 20
    due.hasten("a", 10)
    assert due.take(10) == ["a"]


def test_a_key_that_was_dropped_is_not_due() -> None:
    due: DueTimes[str] = DueTimes()
    for key in ("a", "b"):
        due.put(key, 10)
    due.drop("a")
    due.drop("unknown")
    assert due.take(10) == ["b"]


def test_what_was_replaced_takes_no_memory_for_long() -> None:
    """A log that is never due may be put off for as long as a broker runs."""
    due: DueTimes[str] = DueTimes()
    due.put("first", 0)
    for at_ms in range(10_000, 0, -1):
        due.put("a", at_ms)
    assert len(due._heap) < 300
    assert due.take(1) == ["first", "a"]
