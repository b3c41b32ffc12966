"""What goes wrong again and again is said once."""

from tidelog.storage.troubles import Troubles


def test_a_trouble_is_news_when_it_begins_changes_and_ends() -> None:
    troubles = Troubles()
    assert not troubles.any
    assert [troubles.begin("disk", why) for why in ("full", "full", "broken", "broken", "full")] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert troubles.any
    assert [troubles.end("disk"), troubles.end("disk")] == [True, False]
    assert not troubles.any
    assert troubles.begin("disk", "full")


def test_troubles_do_not_mind_one_another() -> None:
    troubles = Troubles()
    assert troubles.begin("a", "full")
    assert troubles.begin("b", "full")
    assert not troubles.end("c")
    assert troubles.end("a")
    assert troubles.any, "b still has it"
    assert not troubles.begin("b", "full")
    assert troubles.end("b")
    assert not troubles.any
