"""Our messages against Kafka's own definitions, and our bytes against those of a client that reads them.

kafka-python carries most of Kafka's message definitions as JSON. The others, and those whose newest version it does not
know, come from Kafka's own jars, where there is Java. Some begin later than ours (KIP-896), with the fields of the
versions before that still listed. Where our range ends earlier or begins elsewhere, only the versions that we have are
compared.
"""

import importlib
import json
import re
import uuid
from collections.abc import Mapping
from importlib.resources import files
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import java
from tests.support.constructs import plain
from tests.support.strategies import messages
from tests.support.wire import Case
from tidelog.protocol.coordinator import records
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import Field, Versions, default_of, fields_of
from tidelog.protocol.wire.types import UUID, Array, WireType

# What Kafka has and we leave out, and the other way round.
UNSTABLE = {"InitProducerId": 6, "OffsetCommit": 10, "OffsetFetch": 10}
OLDEST_UPSTREAM = {
    "DescribeAcls": 1,
    "Produce": 3,
    "Fetch": 4,
    "ListOffsets": 1,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "DescribeLogDirs": 1,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
}
# The newest version of an API that kafka-python knows, where we have a newer one.
NEWEST_IN_KAFKA_PYTHON = {
    "ApiVersions": 4,
    "ConsumerGroupDescribe": -1,
    "ConsumerGroupHeartbeat": -1,
    "DeleteGroups": 2,
}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


each_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
each_message = pytest.mark.parametrize(
    ("api", "message"),
    [
        pytest.param(api, message, id=message.__name__)
        for api in APIS.values()
        for message in (api.request, api.response)
    ],
)


def definition(name: str, jar: str = "kafka-clients") -> Any:
    """Load a definition of Kafka's, whose JSON has comments."""
    found = files("kafka.protocol.schemas.resources") / f"{name}.json"
    is_known = name.removesuffix("Request").removesuffix("Response") not in NEWEST_IN_KAFKA_PYTHON
    is_there = jar == "kafka-clients" and is_known and found.is_file()
    text = found.read_text() if is_there else from_jar(name, jar)
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def from_jar(name: str, jar: str) -> str:
    """Read a definition out of one of Kafka's jars."""
    if java.MISSING:
        pytest.skip(f"needs {', '.join(java.MISSING)}: kafka-python has no definition of {name}")
    (path,) = java.jars().glob(f"{jar}-[0-9]*.jar")
    with ZipFile(path) as archive:
        return archive.read(f"common/message/{name}.json").decode()


@each_api
def test_the_api_is_kafkas(api: Api) -> None:
    for message, kind in ((api.request, "request"), (api.response, "response")):
        upstream = definition(message.__name__)
        versions = Versions.parse(upstream["validVersions"])
        assert (upstream["apiKey"], upstream["type"]) == (api.key, kind)
        assert Versions.parse(upstream["flexibleVersions"].replace("none", "")) == api.flexible
        assert versions.low == OLDEST_UPSTREAM.get(api.name, api.min_version)
        assert versions.high == UNSTABLE.get(api.name, api.max_version)


@each_message
def test_the_fields_are_kafkas(api: Api, message: type) -> None:
    upstream = definition(message.__name__)
    assert upstream["name"] == message.__name__
    compare(api, message, upstream["fields"], structs_of(upstream))


def structs_of(upstream: Any) -> dict[str, Any]:
    """Give the fields of the structs that a definition uses in several places."""
    return {struct["name"]: struct["fields"] for struct in upstream.get("commonStructs", [])}


OF_CONSUMERS = [
    (kind, message)
    for kinds in (records.KEYS, records.VALUES)
    for kind, message in kinds.items()
    if kind >= records.CONSUMER_GROUP
]


@pytest.mark.parametrize(("kind", "message"), OF_CONSUMERS)
def test_the_records_of_consumer_groups_are_kafkas(kind: int, message: type) -> None:
    upstream = definition(message.__name__, "kafka-group-coordinator")
    assert (upstream["apiKey"], upstream["validVersions"]) == (kind, "0")
    is_key = message in records.KEYS.values()
    assert upstream["flexibleVersions"] == ("none" if is_key else "0+")
    form = Api(key=0, versions="0", flexible="0+", request=message, response=message)
    compare(form, message, upstream["fields"], structs_of(upstream))


def compare(api: Api, message: type, upstream: list[Any], structs: Mapping[str, Any]) -> None:
    """Assert that a message has the fields of a definition, in that order, in the versions that we have."""
    ours = fields_of(message)
    theirs = [entry for entry in upstream if clip(Versions.parse(entry["versions"]), api)]
    assert [field.name for field in ours] == [snake_case(entry["name"]) for entry in theirs]
    for field, entry in zip(ours, theirs, strict=True):
        where = f"{message.__name__}.{field.name}"
        assert facts_of(field, api) == upstream_facts(entry, api), where
        nested = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(nested, type):
            fields = entry.get("fields") or structs[entry["type"].removeprefix("[]")]
            compare(api, nested, fields, structs)


def facts_of(field: Field, api: Api) -> dict[str, Any]:
    default = default_of(field) if not (field.is_required and isinstance(field.type, type)) else None
    return {
        "type": type_name(field.type),
        "versions": clip(field.versions, api),
        "nullable": clip(field.nullable, api) & clip(field.versions, api),
        "tag": field.tag,
        "tagged": clip(field.tagged, api),
        "ignorable": field.ignorable,
        "default": plain(default),
    }


def upstream_facts(entry: Any, api: Api) -> dict[str, Any]:
    versions = clip(Versions.parse(entry["versions"]), api)
    return {
        "type": entry["type"],
        "versions": versions,
        "nullable": clip(Versions.parse(entry.get("nullableVersions", "")), api) & versions,
        "tag": entry.get("tag"),
        "tagged": clip(Versions.parse(entry.get("taggedVersions", "")), api),
        "ignorable": entry.get("ignorable", False),
        "default": upstream_default(entry),
    }


def clip(versions: Versions, api: Api) -> set[int]:
    """Give the versions of ours that lie in a range."""
    return {version for version in range(api.min_version, api.max_version + 1) if versions.has(version)}


def type_name(type_: WireType) -> str:
    if isinstance(type_, Array):
        return f"[]{type_name(type_.element)}"
    return kafkas_name(type_) if isinstance(type_, type) else type_.name


def kafkas_name(struct: type) -> str:
    """Give Kafka's name of a struct: it has the same one in some requests and in their answers, where we cannot."""
    return struct.__name__.removeprefix("Asked")


def upstream_default(entry: Any) -> Any:
    """Give the default by Kafka's rule: the declared one, else the zero of the type."""
    type_, declared = entry["type"], entry.get("default")
    if declared == "null" or ("default" in entry and declared is None):
        return None
    if type_.startswith("[]"):
        return []
    match type_:
        case "string":
            return declared or ""
        case "bool":
            return str(declared).lower() == "true"
        case "uuid":
            return bytes(16)
        case "bytes":
            return b""
        case "records":
            return None
        case "float64":
            return float(declared or 0)
        case "int8" | "int16" | "uint16" | "int32" | "int64":
            return int(str(declared or 0), 0)
    if "fields" not in entry:
        return None  # a struct of several places; ours are to be given
    return {snake_case(field["name"]): upstream_default(field) for field in entry["fields"]}


WIRE_CASES = [
    Case(message, version, api.is_flexible(version))
    for api in APIS.values()
    for message in (api.request, api.response)
    for version in range(api.min_version, NEWEST_IN_KAFKA_PYTHON.get(api.name, api.max_version) + 1)
]


@pytest.mark.filterwarnings("ignore:read_text is deprecated")  # by which kafka-python loads its definitions
@pytest.mark.parametrize("case", WIRE_CASES, ids=str)
@settings(max_examples=3)
@given(data=st.data())
def test_kafka_python_writes_the_same_bytes(case: Case, data: st.DataObject) -> None:
    value = data.draw(messages(case.message, case.version))
    theirs = translated(value, case.version, client_class(case.message.__name__))
    assert case.write(value) == bytes(theirs.encode(version=case.version))


def client_class(name: str) -> Any:
    """Find the class of a message in kafka-python."""
    for module in ("admin", "consumer", "metadata", "producer"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    raise LookupError(name)


def translated(value: Any, version: int, cls: Any) -> Any:
    """Make the same message of a class of kafka-python's; tagged fields that have their default are left out."""
    arguments = {
        field.name: translated_field(field.type, getattr(value, field.name), version, cls)
        for field in fields_of(type(value))
        if field.versions.has(version)
        and (field.tag is None or getattr(value, field.name) != default_of(field))
    }
    # kafka-python calls the bits of allowed operations by another name, as a rule, and wants them as a set then.
    for name in ("authorized_operations", "cluster_authorized_operations", "topic_authorized_operations"):
        if name in arguments and "authorized_operations" in cls._struct.fields:
            bits = arguments.pop(name)
            arguments["authorized_operations"] = {bit for bit in range(32) if bits >> bit & 1}
    return cls(version=version, **arguments)


def translated_field(type_: WireType, value: Any, version: int, cls: Any) -> Any:
    if isinstance(value, list) and isinstance(type_, Array):
        return [translated_field(type_.element, element, version, cls) for element in value]
    if isinstance(type_, type) and value is not None:
        return translated(value, version, getattr(cls, kafkas_name(type_)))
    return uuid.UUID(bytes=value) if type_ is UUID else value
