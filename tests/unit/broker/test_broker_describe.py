"""docs/compatibility.md: every API that is served says what it does, in one form, and nothing that is not so."""

import pytest

from tidelog.broker import describe
from tidelog.broker.routes import SERVED
from tidelog.protocol.messages.metadata import METADATA
from tidelog.protocol.messages.produce import PRODUCE
from tidelog.protocol.registry import APIS

DOC = "Metadata.\n\nVersions: 0-13 (10 and later by id).\nBehaviour: tells all."


def test_every_api_has_its_place() -> None:
    page = describe.page()
    for api in APIS.values():
        assert f"\n## {api.name}\n\nVersions " in page
    assert SERVED.keys() == APIS.keys()


def test_departures_stand_apart() -> None:
    parts = describe.described(METADATA, f"{DOC}\nMore of it.\nDepartures from Kafka: some.\nAnd others.")
    assert parts == ("0-13", " (10 and later by id)", "tells all.\nMore of it.", "some.\nAnd others.")
    assert describe.described(METADATA, DOC).departures == ""


@pytest.mark.parametrize("doc", [DOC.replace("0-13", "0-12"), DOC.replace("Behaviour: ", ""), ""])
def test_a_docstring_that_is_not_so_is_refused(doc: str) -> None:
    with pytest.raises(ValueError, match="Metadata"):
        describe.described(METADATA, doc)


def test_a_docstring_of_another_api_is_refused() -> None:
    with pytest.raises(ValueError, match="Metadata 0-13: the API is Produce"):
        describe.described(PRODUCE, DOC)
