"""Makes docs/compatibility.md from the docstrings of the handlers (`make docs`).

Checks that each docstring has the form: the API's name, its versions, its behaviour, and its departures from Kafka.
"""

import inspect
import re
from typing import Final, NamedTuple

from tidelog.broker.routes import SERVED
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api

OPENING: Final = """\
# Compatibility

This page lists the APIs of Kafka's protocol that Tidelog supports, what each does, and how it differs from Apache
Kafka. [protocol.md](protocol.md) has the fields of each message. [operations.md](operations.md) describes known bugs of
client libraries, such as kafka-python's after `resume()`.

ApiVersions does not list other APIs. If a client sends a request for one, the broker closes the connection and logs it.

Generated from the docstrings in `broker/handlers/` by `make docs`; do not edit.
"""

_FORM: Final = re.compile(
    r"(?P<name>\w+)\.\n\n"
    r"Versions: (?P<versions>\d+(?:-\d+)?)(?P<note>[^\n]*)\.\n"
    r"Behaviour: (?P<behaviour>.+?)"
    r"(?:\nDepartures from Kafka: (?P<departures>.+))?",
    re.DOTALL,
)


class Described(NamedTuple):
    """The parts of a handler's docstring."""

    versions: str
    note: str
    behaviour: str
    departures: str


def described(api: Api, doc: str) -> Described:
    """Return the parts of a docstring. Raise ValueError if its form, its name or its versions are wrong."""
    form = _FORM.fullmatch(doc)
    if form is None:
        raise ValueError(
            f"{api.name}: the docstring does not have the form 'Name. Versions: Behaviour: Departures from Kafka:'"
        )
    versions = (
        f"{api.min_version}-{api.max_version}" if api.max_version > api.min_version else f"{api.min_version}"
    )
    if (form["name"], form["versions"]) != (api.name, versions):
        raise ValueError(f"{form['name']} {form['versions']}: the API is {api.name} {versions}")
    return Described(versions, form["note"], form["behaviour"], form["departures"] or "")


def page() -> str:
    """Return the text of docs/compatibility.md."""
    apis = [(api, described(api, _docstring(api))) for api in APIS.values()]
    rows = [f"| {api.key} | [{api.name}](#{api.name.lower()}) | {each.versions} |" for api, each in apis]
    parts = [OPENING, "\n".join(["| Key | API | Versions |", "| --: | --- | --- |", *rows]) + "\n"]
    for api, each in apis:
        parts.append(
            f"## {api.name}\n\nVersions {each.versions}{each.note}.\n\n{_sentence(each.behaviour)}\n"
        )
        if each.departures:
            parts.append(f"**Departures from Kafka:** {each.departures}\n")
    return "\n".join(parts)


def _docstring(api: Api) -> str:
    module = inspect.getmodule(SERVED[api.key].handle)
    return inspect.getdoc(module) or ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
