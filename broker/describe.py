"""The text of docs/compatibility.md, from the docstrings of the handlers (`make docs`).

Owns the form of that document, and that each of those docstrings has it: the API's name, its versions, what it does,
and where that departs from Kafka. The sentences are theirs.
"""

import inspect
import re
from typing import NamedTuple

from tidelog.broker.routes import SERVED
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api

OPENING = """\
# Compatibility

Generated from the docstrings in `broker/handlers/` by `make docs`; do not edit.

What of Kafka's protocol is served, what it does here, and where that departs from Apache Kafka. The fields of each
message are in [protocol.md](protocol.md). An API that does not stand here is not announced; a request for it ends the
connection, with a line in the log. Known traps of client libraries, such as kafka-python's after `resume()`, are in
[operations.md](operations.md).
"""

_FORM = re.compile(
    r"(?P<name>\w+)\.\n\n"
    r"Versions: (?P<versions>\d+(?:-\d+)?)(?P<note>[^\n]*)\.\n"
    r"Behaviour: (?P<behaviour>.+?)"
    r"(?:\nDepartures from Kafka: (?P<departures>.+))?",
    re.DOTALL,
)


class Described(NamedTuple):
    """What the docstring of a handler says of its API."""

    versions: str
    note: str
    behaviour: str
    departures: str


def described(api: Api, doc: str) -> Described:
    """Return what a docstring says. Raise ValueError for one that is not of the form, or says what is not so."""
    form = _FORM.fullmatch(doc)
    if form is None:
        raise ValueError(
            f"{api.name}: no docstring of the form 'Name. Versions: Behaviour: Departures from Kafka:'"
        )
    versions = (
        f"{api.min_version}-{api.max_version}" if api.max_version > api.min_version else f"{api.min_version}"
    )
    if (form["name"], form["versions"]) != (api.name, versions):
        raise ValueError(f"{form['name']} {form['versions']}: served is {api.name} {versions}")
    return Described(versions, form["note"], form["behaviour"], form["departures"] or "")


def page() -> str:
    """Return the text of docs/compatibility.md."""
    all_of_them = [(api, described(api, _docstring(api))) for api in APIS.values()]
    rows = [
        f"| {api.key} | [{api.name}](#{api.name.lower()}) | {told.versions} |" for api, told in all_of_them
    ]
    parts = [OPENING, "\n".join(["| Key | API | Versions |", "| --: | --- | --- |", *rows]) + "\n"]
    for api, told in all_of_them:
        parts.append(
            f"## {api.name}\n\nVersions {told.versions}{told.note}.\n\n{_sentence(told.behaviour)}\n"
        )
        if told.departures:
            parts.append(f"**Departures from Kafka:** {told.departures}\n")
    return "\n".join(parts)


def _docstring(api: Api) -> str:
    module = inspect.getmodule(SERVED[api.key].handle)
    return inspect.getdoc(module) or ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
