"""Two brokers in the process of the test: one as installed, the other its judge.

The judge is all of the project's code once more, with every compiled module interpreted from its source, and takes each
request for one partition through the envelope of many. Owns both, and what makes them alike: clock, ids, and that no
request ends its turn by the time that it took. Knows nothing of what is asked.
"""

import os
import random
import sys
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from math import inf
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.batches import NOW_MS

PACKAGE = "tidelog"
ROOMS = ("config.load", "broker.broker", "broker.clock", "broker.session", "broker.dispatch")
COMPILED = (
    *("protocol.wire.reader", "protocol.wire.writer", "protocol.wire.layout"),
    *("protocol.records.kernel", "protocol.records.search", "protocol.records.keys", "protocol.records.kept"),
    "protocol.records.key_hashes",
)
CLIENTS = 3
LONG_WAIT_MS = 60_000

# Modules by their name in the package.
Code = dict[str, Any]


class _Sources(MetaPathFinder):
    """Finds the source of what is compiled."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or not isinstance(spec.loader, ExtensionFileLoader):
            return None
        source = Path(spec.origin).with_name(fullname.rpartition(".")[2] + ".py")
        return spec_from_file_location(fullname, source)


def _taken_out() -> dict[str, ModuleType]:
    """Take all that is imported of the project out of the list of modules."""
    names = [name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")]
    return {name: sys.modules.pop(name) for name in names}


def _imported() -> Code:
    """Import what a broker consists of, and make its readers and writers: that imports as well."""
    for room in ROOMS:
        import_module(f"{PACKAGE}.{room}")
    registry, dispatch = (
        sys.modules[f"{PACKAGE}.{name}"] for name in ("protocol.registry", "broker.dispatch")
    )
    for key, api in registry.APIS.items():
        for version in range(api.min_version, api.max_version + 1):
            dispatch._find_route(key << 16 | version)
    return {
        name.removeprefix(PACKAGE + "."): module
        for name, module in sys.modules.items()
        if name.startswith(PACKAGE + ".")
    }


@cache
def installed() -> Code:
    """Return the code as it is imported everywhere."""
    return _imported()


@cache
def judge() -> Code:
    """Return the code for an interpreter, in which every request is one of many."""
    kept, finder = _taken_out(), _Sources()
    sys.meta_path.insert(0, finder)
    try:
        code = _imported()
    finally:
        sys.meta_path.remove(finder)
        _taken_out()
        sys.modules.update(kept)
    assert not any(code[name].COMPILED for name in COMPILED)
    for name in COMPILED:
        code[name].cython = _quicker(code[name].cython)
    _ask_as_of_many(code)
    return code


def _quicker(cython: ModuleType) -> SimpleNamespace:
    """Return what stands for Cython where nothing is compiled; its casts, of which most change nothing, take long."""
    cast = cython.cast
    own = {"cast": lambda kind, value: value if type(value) in (kind, int) else cast(kind, value)}
    return SimpleNamespace(**{**vars(cython), **own})


def _ask_as_of_many(code: Code) -> None:
    """Have no request go the way of those with one partition."""
    produce, fetch, list_offsets = (
        code[f"broker.handlers.{name}"] for name in ("produce", "fetch", "list_offsets")
    )
    assert "looks_at_once" in vars(fetch._Fetch)
    fetch._Fetch.looks_at_once = lambda self: not self._request.topics

    def look_up(session: Any, request: Any, version: int) -> Any:
        return list_offsets._respond(session.broker, request, version)

    def keep_needed(request: Any, version: int) -> Any:
        for topic in request.topics:
            topic.partitions = topic.partitions * 2  # The last that names a partition counts.
        return fetch.keep_needed(request, version)

    instead = {
        produce.handle: {"handle": produce._append_all},
        list_offsets.handle: {"handle": look_up},
        fetch.handle: {"keep": keep_needed},
    }
    routes = code["broker.dispatch"]._routes
    for key_version, route in routes.items():
        fields = {name: getattr(route, name) for name in route.__slots__}
        routes[key_version] = type(route)(**{**fields, **instead.get(route.handle, {})})


class Side:
    """One of the two brokers, and its clients. Its answers come in a form that can be compared."""

    def __init__(
        self, code: Code, folder: Path, seed: int, options: dict[str, str], patch: pytest.MonkeyPatch
    ) -> None:
        """Start on a new folder, on the running loop."""
        self.folder = folder
        self._code = code
        # The ids of topics and of the data folder, of producers and of fetch sessions.
        ids = random.Random(seed)
        same = SimpleNamespace(uuid4=lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
        for name in ("broker.catalog", "storage.layout"):
            patch.setattr(code[name], "uuid", same)
        drawn = SimpleNamespace(SystemRandom=lambda: ids)
        for name in ("broker.catalog", "broker.fetch_sessions"):
            patch.setattr(code[name], "random", drawn)
        # No turn is over by the time that it took: how long that is depends on the machine, and on the side.
        patch.setattr(code["broker.running"], "LOOP_S", inf)
        patch.setattr(code["broker.turns"].Turns, "share_ends_s", lambda _self: inf)
        # Nor is anything ever to be waited for from the disk; what is tested needs none.
        patch.setattr(
            code["storage.files"].File,
            "fill_nowait",
            lambda file, buffer, position: os.preadv(file._fd, [buffer], position) == len(buffer),
        )
        for owner, name in ((os, "fdatasync"), (os, "fsync"), (code["storage.files"].FileSystem, "sync")):
            patch.setattr(owner, name, lambda *_: None)
        self.clock = code["broker.clock"].Clock()
        self.clock.hold(NOW_MS)
        config = code["config.load"].load(None, {}, {"log.dir": str(folder), **options})
        self.broker = code["broker.broker"].Broker(config, self.clock)
        self.broker.start()
        session = code["broker.session"].Session
        reached = ("127.0.0.1", 9092)
        self._sessions = [
            session(self.broker, "PLAINTEXT", ("127.0.0.1", 40_000 + n), reached) for n in range(CLIENTS)
        ]

    def ask(self, client: int, frame: bytes, heard: Callable[..., None]) -> "Answer":
        """Have a frame answered, its size included; `heard` is told when there is more to know of the answer."""
        # Its own copy: a batch is given its offsets where it lies.
        view = memoryview(bytearray(frame))
        session = self._sessions[client]
        dispatch = self._code["broker.dispatch"].dispatch
        return Answer(self, lambda: dispatch(session, view, 4, len(view)), session, heard)

    def log(self, topic: str, index: int) -> Any:
        """Return the log of a partition, None if there is none."""
        found = self.broker.topics.by_name.get(topic)
        partition = found.partition(index) if found else None
        return partition.log if partition else None

    @property
    def is_waking(self) -> bool:
        """Tell whether fetches that waited are about to be answered."""
        return bool(self.broker.parked._waking)

    def form_of(self, outcome: Any) -> Any:
        """Return an answer as values that are equal on both sides: what form it has, and its bytes."""
        if isinstance(outcome, Exception):
            request = getattr(outcome, "request", None)  # which it was, of those that end their connection
            return type(outcome).__name__, request, self._anywhere(str(outcome).encode())
        if outcome is None:
            return None
        if type(outcome) is self._code["broker.answers"].Streamed:
            parts = [part.read() if hasattr(part, "read") else part for part in outcome.parts]
            return "streamed", outcome.size_bytes, [bytes(part) for part in parts]
        return "at once", [self._anywhere(bytes(part)) for part in outcome[0]], outcome[1]

    def _anywhere(self, told: bytes) -> bytes:
        """Name the data folder otherwise: both names are of one length."""
        return told.replace(str(self.folder).encode(), b"(folder)")

    def stop(self) -> dict[str, bytes]:
        """Stop in order; return what the logs hold, by file."""
        self.broker.release()
        self.broker.stop()
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.glob("*-*/*"))
            if path.suffix in (".log", ".index", ".timeindex", ".appendindex")
        }


class Answer:
    """What became of one request on one side, or is still to come of it."""

    def __init__(self, side: Side, ask: Callable[[], Any], session: Any, heard: Callable[..., None]) -> None:
        self._side = side
        self._heard = heard
        self._session = session
        self._code = side._code["broker.answers"]
        self.waits_long = False  # for records, and for longer than any test lasts
        self._take(ask)

    def _take(self, come: Callable[[], Any]) -> None:
        try:
            self._outcome = come()
        except Exception as fault:
            self._outcome = fault
        if self.is_deferred:
            later = self._outcome
            later.ready = later.lightened = self._heard
            later.charge(self._session)
            if self.waits_for == "FetchWaiter":
                groups = self._side.broker.parked._due.items()
                due_ms = next(due_ms for due_ms, due in groups if self._awaited in due)
                self.waits_long = due_ms > self._side.clock.monotonic_ms() + LONG_WAIT_MS

    @property
    def is_deferred(self) -> bool:
        """Tell whether the answer is to come."""
        return isinstance(self._outcome, self._code.Later)

    @property
    def is_owed(self) -> bool:
        """Tell whether the answer is still to come."""
        return self.is_deferred and self._outcome.response is None

    @property
    def holds_up(self) -> bool:
        """Tell whether its client can have no other request answered before."""
        return self.is_owed and self._outcome.weight_bytes >= self._code.HOLDS_UP

    @property
    def waits_for(self) -> str:
        """Return what kind of answer to come it is, for people and to compare."""
        return type(self._awaited).__name__ if self.is_deferred else "nothing"

    @property
    def _awaited(self) -> Any:
        later = self._outcome
        return getattr(later, "_awaited", None) or later

    def hurry(self) -> None:
        """Have it come with what there is."""
        if self.is_owed:
            self._outcome.hurry()

    def encode(self) -> None:
        """Take what has come; that may be another answer to come."""
        if self.is_deferred and not self.is_owed:
            deferred = self._outcome
            self._take(lambda: deferred.encoded() or deferred)

    @property
    def form(self) -> Any:
        """The answer, which has come, in the form in which both sides are the same."""
        return self._side.form_of(self._outcome)
