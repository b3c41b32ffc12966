"""Break the code on purpose, one small change at a time, and list the changes that no test notices.

Owns the making of mutants (from the syntax tree: comparisons, arithmetic, constants, conditions, statements left out),
the choice of a seeded sample, and the runs, each in a copy of the checkout. Knows nothing of what is right: that is for
the tests. Mutants that change nothing that anybody can see stand in tests/equivalent-mutants.txt, each with its reason.

The well-kept tools did not serve: cosmic-ray leaves no statement out, and makes ten equal mutants of a `+`; mutmut runs
the tests in a tree of its own, in which the links of src/tidelog lead nowhere.
"""

import argparse
import ast
import contextlib
import copy
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "equivalent-mutants.txt"
# A run that hangs counts as a mutant noticed: so it may take three times what the tests take without any change.
LIMIT_TIMES, LIMIT_LEAST_S = 3, 60
UNCHANGED_LIMIT_S = 3600
NOT_COPIED = (
    ".git",
    ".venv*",
    ".hypothesis",
    ".*_cache",
    "*.egg-info",
)

_NO_PROCESS = ["-m", "not all and not e2e and not java and not slow"]
_BOTH_WAYS = ["tests/property/test_both_ways.py", "-k", "[1]"]  # one of its seeds

# Which tests have to notice, quickest first; those that are slower come once these have passed.
TESTS = {
    "storage": (
        ["tests/unit/test_storage_*.py", "tests/unit/test_cli_dump.py"],
        ["tests/property/test_log_model.py", "tests/property/test_retention.py", "tests/fault", *_NO_PROCESS],
    ),
    "broker": (
        ["tests/unit", "-k", "not storage and not bench and not budgets and not docker and not kernel"],
        ["tests/fault", "tests/conformance", *_NO_PROCESS],
        _BOTH_WAYS,
    ),
    "protocol": (
        ["tests/unit", "-k", "(wire or records or kernel or frame or validate) and not kernel_build"],
        ["tests/property", "tests/conformance/test_messages.py", "-m", "not slow"],
        _BOTH_WAYS,
    ),
    "config": (["tests/unit/test_config*.py"],),
    "cli": (["tests/unit/test_cli*.py"], ["tests/e2e/test_cli.py"]),
    "testing": (["tests/testing"],),
}
_UNIT_FILES = {"storage": "tests/unit/test_storage_{}.py"}  # of the other rooms: tests/unit/test_{}.py
_RECOVERED = ["tests/fault/test_recovery.py", "tests/fault/test_damage.py"]
_ANSWERS = ["handlers", "client_answers"]
_ADMINISTERED = ["administration"]
_GROUPS = ["group_handlers", "group_memory"]
_CLI_ADMINISTERS, _CLI_GROUPS = "tests/e2e/test_administration.py", "tests/e2e/test_cli_groups.py"
_CODEC = ["wire", "tests/property/test_wire.py"]
_KERNEL = ["kernel", "tests/property/test_records_kernel.py"]
_KEYS = ["keys", "tests/property/test_records_keys.py"]
# What is run before all else for a file, or the files of a folder: most mutants die within a second of it.
FIRST = {
    "broker/answers": ["connection_bounds"],
    "broker/authorized_operations": ["handlers"],
    "broker/broker": ["topics", "administration", "handlers"],
    "broker/catalog": ["catalog", "topics"],
    "broker/catalog_check": ["catalog", "cli_fsck"],
    "broker/cleaners": ["cleaners"],
    "broker/clock": ["timers", "waiting", "handlers"],
    "broker/codes": _ANSWERS,
    "broker/config_changes": _ADMINISTERED,
    "broker/describe": ["broker_describe"],
    "broker/dispatch": ["handlers", "connection_bounds", "repeated_lines"],
    "broker/fair_queue": ["threads"],
    "broker/fetch_sessions": ["fetch_sessions", "fetch_sessions_served"],
    "broker/flusher": ["waiting", "threads"],
    "broker/groups/waiting": ["group_handlers"],
    "broker/groups/assignors": ["assignors"],
    "broker/groups/classic": ["groups_classic", "group_handlers"],
    "broker/groups/consumer": ["groups_consumer", "groups_mixed", "consumer_group_model"],
    "broker/groups/consumer_member": ["groups_consumer", "consumer_group_model"],
    "broker/groups/consumer_parts": ["groups_consumer", "groups_mixed"],
    "broker/groups/consumer_records": ["groups_log", "groups_torn", "consumer_group_model"],
    "broker/groups/consumers": ["groups_mixed", "consumer_group_handlers"],
    "broker/groups/coordinator": [*_GROUPS, "consumer_group_handlers"],
    "broker/groups/making_room": ["making_room", "group_memory"],
    "broker/groups/matches": ["groups_consumer", "consumer_group_model"],
    "broker/groups/member": ["groups_classic", "group_handlers"],
    "broker/groups/memory": ["group_memory", "making_room", "group_handlers"],
    "broker/groups/offsets": ["groups_log", "group_handlers"],
    "broker/groups/offsets_log": ["groups_log", "group_handlers"],
    "broker/groups/mixed": ["groups_mixed", "consumer_group_handlers"],
    "broker/groups/states": ["groups_classic"],
    "broker/groups/topic_patterns": ["topic_patterns"],
    "broker/handlers/alter_configs": _ADMINISTERED,
    "broker/handlers/alter_partition_reassignments": _ADMINISTERED,
    "broker/handlers/api_versions": _ANSWERS,
    "broker/handlers/consumer_group_describe": ["consumer_group_handlers"],
    "broker/handlers/consumer_group_heartbeat": ["consumer_group_handlers", "group_memory"],
    "broker/handlers/create_partitions": [*_ADMINISTERED, "tolerated_replicas"],
    "broker/handlers/create_topics": [*_ANSWERS, "topics", "tolerated_replicas"],
    "broker/handlers/delete_records": _ADMINISTERED,
    "broker/handlers/delete_topics": [*_ANSWERS, "topics"],
    "broker/handlers/describe_acls": ["nothing_to_describe"],
    "broker/handlers/describe_client_quotas": ["nothing_to_describe"],
    "broker/handlers/describe_cluster": _ANSWERS,
    "broker/handlers/describe_configs": [*_ANSWERS, *_ADMINISTERED],
    "broker/handlers/describe_log_dirs": _ADMINISTERED,
    "broker/handlers/describe_producers": _ADMINISTERED,
    "broker/handlers/describe_quorum": _ANSWERS,
    "broker/handlers/describe_topic_partitions": _ADMINISTERED,
    "broker/handlers/describe_user_scram_credentials": ["nothing_to_describe"],
    "broker/handlers/elect_leaders": _ADMINISTERED,
    "broker/handlers/delete_groups": _GROUPS,
    "broker/handlers/describe_groups": _GROUPS,
    "broker/handlers/fetch": [
        *_ANSWERS,
        "data_requests",
        "fetch_sessions_served",
        "work",
        "connection_bounds",
    ],
    "broker/handlers/incremental_alter_configs": _ADMINISTERED,
    "broker/handlers/init_producer_id": [*_ANSWERS, "topics"],
    "broker/handlers/list_config_resources": _ADMINISTERED,
    "broker/handlers/find_coordinator": _GROUPS,
    "broker/handlers/heartbeat": _GROUPS,
    "broker/handlers/join_group": _GROUPS,
    "broker/handlers/leave_group": _GROUPS,
    "broker/handlers/list_groups": _GROUPS,
    "broker/handlers/list_offsets": [*_ANSWERS, "data_requests", "work"],
    "broker/handlers/list_partition_reassignments": _ADMINISTERED,
    "broker/handlers/list_transactions": ["nothing_to_describe"],
    "broker/handlers/metadata": [*_ANSWERS, "topics", "connection_bounds"],
    "broker/handlers/offset_commit": _GROUPS,
    "broker/handlers/offset_delete": _GROUPS,
    "broker/handlers/offset_fetch": _GROUPS,
    "broker/handlers/offset_for_leader_epoch": [*_ANSWERS, "work"],
    "broker/handlers/produce": [*_ANSWERS, "data_requests", "large_batches", "connection_bounds"],
    "broker/handlers/sync_group": _GROUPS,
    "broker/importing": ["importing"],
    "broker/maintenance": ["threads", "topics"],
    "broker/metrics/collect": ["metrics"],
    "broker/metrics/describe": ["metrics"],
    "broker/metrics/exposition": ["metrics"],
    "broker/metrics/health": ["metrics", "http"],
    "broker/metrics/looks": ["metrics"],
    "broker/metrics/table": ["metrics"],
    "broker/net/admission": ["connection"],
    "broker/net/connection": ["connection", "connection_bounds", "turns", "hold", "handlers"],
    "broker/net/frame_memory": ["frame_memory"],
    "broker/net/http": ["http"],
    "broker/net/outbox": ["outbox"],
    "broker/net/pending": ["connection_bounds", "connection", "large_batches"],
    "broker/net/receive_buffer": ["connection_bounds", "connection"],
    "broker/net/sender": ["connection_bounds"],
    "broker/net/server": ["connection", "connection_bounds", "topics"],
    "broker/partition": ["handlers", "waiting", "connection"],
    "broker/producer_ids": ["threads", "topics"],
    "broker/quota": ["quota"],
    "broker/repeated_lines": ["repeated_lines"],
    "broker/routes": ["handlers"],
    "broker/serve": ["topics", "cli_serve"],
    "broker/session": ["frame", "handlers", "connection"],
    "broker/running": ["work", "threads", "large_batches", "connection_bounds"],
    "broker/tallies": ["metrics"],
    "broker/threads": ["threads"],
    "broker/timers": ["timers"],
    "broker/topic_changes": _ADMINISTERED,
    "broker/topics": ["topics", "administration", "handlers"],
    "broker/turns": ["turns"],
    "broker/waiting": ["waiting", "fetch_sessions"],
    "broker/control": ["tests/testing"],
    "broker/control_path": ["tests/testing/test_broker.py"],
    "broker/faults": ["tests/testing/test_faults.py"],
    "broker/work": ["work", "client_answers", "topics"],
    "cli/audit": ["tests/e2e/test_cli_audit.py"],
    "cli/batches": ["tests/e2e/test_cli_audit.py"],
    "cli/control": ["tests/testing/test_command.py"],
    "cli/control_client": ["tests/testing"],
    "cli/configs": ["cli", _CLI_ADMINISTERS],
    "cli/consumer_group_api": ["cli_groups", _CLI_GROUPS],
    "cli/delete_records": [_CLI_ADMINISTERS],
    "cli/dump": ["cli_dump"],
    "cli/explain": ["cli_explain", "cli_explain_compaction"],
    "cli/fsck": ["cli_fsck"],
    "cli/group_reset": ["cli", "cli_groups", _CLI_GROUPS],
    "cli/groups": ["cli_groups", _CLI_GROUPS],
    "cli/key_audit": ["key_audit"],
    "cli/lag": ["cli_groups"],
    "cli/log_dirs": [_CLI_ADMINISTERS],
    "cli/produce": ["cli_produce", "cli"],
    "cli/quick": ["cli_quick"],
    "cli/serve": ["cli_serve"],
    "cli/tail": ["cli_tail"],
    "cli/times": ["cli_times"],
    "cli/topics": ["cli", _CLI_ADMINISTERS],
    "cli/verbs": ["cli", _CLI_ADMINISTERS, _CLI_GROUPS],
    "protocol/coordinator": ["groups_log", "groups_mixed", "tests/conformance/test_messages.py"],
    "protocol/describe": ["wire_describe"],
    "protocol/frame": ["frame"],
    "protocol/messages": ["tests/conformance/test_messages.py", "wire"],
    "protocol/records/batch": ["records_batch"],
    "protocol/records/build": ["records_batch", "topic_format", "tests/property/test_records.py"],
    "protocol/records/columns": _KERNEL,
    "protocol/records/compression": ["records_compression"],
    "protocol/records/convert": ["convert", "tests/property/test_message_sets.py"],
    "protocol/records/errors": ["records_validate"],
    "protocol/records/kept": _KEYS,
    "protocol/records/kernel": _KERNEL,
    "protocol/records/keys": _KEYS,
    "protocol/records/legacy": ["message_set", "topic_format", "storage_walk", "cli_dump"],
    "protocol/records/legacy_codecs": ["message_set"],
    "protocol/records/legacy_validate": ["topic_format", "keys_of_compacted_topics"],
    "protocol/records/message_set": ["message_set", "convert", "topic_format"],
    "protocol/records/recompress": ["recompress"],
    "protocol/records/search": _KERNEL,
    "protocol/records/tally": ["tally", "key_audit"],
    "protocol/records/topic_format": ["topic_format", "tests/property/test_message_sets.py"],
    "protocol/records/validate": ["records_validate", "keys_of_compacted_topics"],
    "protocol/registry": ["wire"],
    "protocol/wire/api": _CODEC,
    "protocol/wire/compiler": _CODEC,
    "protocol/wire/constructs": ["wire", "wire_schema", "tests/property/test_wire.py"],
    "protocol/wire/error_codes_in": ["metrics"],
    "protocol/wire/errors": _CODEC,
    "protocol/wire/maker": ["wire_schema", *_CODEC],
    "protocol/wire/reader": ["frame", *_CODEC],
    "protocol/wire/schema": ["wire_schema", "wire", "tests/conformance/test_messages.py"],
    "protocol/wire/structs": ["wire_schema", *_CODEC],
    "protocol/wire/types": _CODEC,
    "protocol/wire/writer": _CODEC,
    "storage/batch_rules": ["log", "tests/unit/test_large_batches.py", "tests/unit/test_recompress.py"],
    "storage/blocks": ["blocks"],
    "storage/checkpoints": ["checkpoints"],
    "storage/continuity": ["recovery", "log_manager", *_RECOVERED],
    "storage/deleted_files": ["retention", "log_manager"],
    "storage/disk_space": ["disk_space"],
    "storage/due_times": ["due_times", "log_manager"],
    "storage/durability": ["flush", "group_sync", "log_manager"],
    "storage/errors": ["verification"],
    "storage/files": ["files", "group_sync", "log"],
    "storage/folder_identity": ["log_manager"],
    "storage/fsck": ["fsck"],
    "storage/group_sync": ["group_sync"],
    "storage/health": ["epochs", "flush", "tests/fault/test_bad_disk.py"],
    "storage/hint_check": ["hint_check", "cli_fsck"],
    "storage/importing": ["tests/unit/test_importing.py"],
    "storage/index_file": ["index_file"],
    "storage/leader_epochs": ["epochs"],
    "storage/log": ["log", "roll", "retention", "epochs", "producer_state", "flush", *_RECOVERED],
    "storage/log_names": ["fsck", "log_manager"],
    "storage/log_manager": ["log_manager"],
    "storage/minima": ["minima", "summary", "time_range"],
    "storage/offset_index": ["index_file", "indexes", "by_time", "time_range"],
    "storage/open_segments": ["open_segments"],
    "storage/origin": ["tests/fault/test_lost_offsets.py", "tests/unit/test_importing.py", *_RECOVERED],
    "storage/pins": ["tests/unit/test_pins.py"],
    "storage/producer_snapshots": ["producer_state"],
    "storage/producer_state": ["producer_state"],
    "storage/read_only": ["read_only"],
    "storage/recovery": ["recovery", "flush", "log_manager", "epochs", "retention", *_RECOVERED],
    "storage/retention": ["retention", "explained"],
    "storage/roll_times": ["roll"],
    "storage/scrub": ["scrub"],
    "storage/search/by_offset": ["by_offset", "log", "by_time", "blocks", "flush"],
    "storage/search/by_time": ["by_time"],
    "storage/search/in_batch": ["by_time"],
    "storage/search/explained": ["explained"],
    "storage/search/lag": ["lag"],
    "storage/search/time_range": ["time_range"],
    "storage/search/times_cache": ["times_cache", "by_time"],
    "storage/segment": ["log", "indexes", "roll", "flush", "verification", "blocks", *_RECOVERED],
    "storage/segment_check": ["fsck"],
    "storage/shared": ["log_manager", "open_segments"],
    "storage/sources": ["files", "by_time", "by_offset"],
    "storage/summary": ["summary", "indexes", "time_range"],
    "storage/tally": ["tests/unit/test_metrics.py"],
    "storage/time_index": ["indexes", "by_time"],
    "storage/troubles": ["troubles"],
    "storage/unflushed": ["flush", "log_manager"],
    "storage/unopened": ["log_manager", "tests/fault/test_damage_served.py"],
    "storage/upkeep": ["retention", "roll", "log_manager"],
    "storage/verification": ["verification", *_RECOVERED],
    "storage/walk": ["walk"],
}
# Loaded once, before a run's process is split off: a third of what the shortest takes.
_PRELOADED = [
    "pytest",
    "hypothesis",
    "hypothesis.strategies",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "uvloop",
    "xdist",
]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_LOG_CALLS = ("_log.", "logging.")
# Functions that an interpreter never calls.
_OF_THE_COMPILER = ("_construct", "__dealloc__")
_processes = multiprocessing.get_context("forkserver")


class Mutant(NamedTuple):
    """One change: the file, the number of the change in it, the function, and what stands there instead of what."""

    path: Path
    number: int
    function: str
    line: int
    change: str

    @property
    def name(self) -> str:
        """What the change is called, also when the lines around it have moved."""
        return f"{self.path.relative_to(ROOT)}::{self.function}: {self.change}"

    @property
    def room(self) -> str:
        """The folder of the source that it is in."""
        return self.path.relative_to(ROOT).parts[0]

    def made_in(self, text: str) -> str:
        """Return the whole file with the change; `text` is what it was when the mutant was chosen."""
        tree = ast.parse(text)
        next(islice(_mutations(tree), self.number, None))
        return ast.unparse(ast.fix_missing_locations(tree))


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file; where a function allows the same change more than once, each has its number."""
    seen: Counter[tuple[str, str]] = Counter()
    for number, (function, node, changed) in enumerate(_mutations(ast.parse(path.read_text()))):
        change = f"{_short(node)} -> {_short(changed)}"
        seen[function, change] += 1
        nth = seen[function, change]
        yield Mutant(path, number, function, node.lineno, change if nth == 1 else f"{change} ({nth})")


def _mutations(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """Make every change in turn; yield (function, what stood there, what stands there now) while it is made."""
    for function, holder, field, index, node in _places(tree):
        for changed in _changes(node):
            siblings = getattr(holder, field)
            if index is None:
                setattr(holder, field, changed)
            else:
                siblings[index] = changed
            yield function, node, changed
            if index is None:
                setattr(holder, field, node)
            else:
                siblings[index] = node


def _places(tree: ast.Module) -> Iterator[tuple[str, ast.AST, str, int | None, ast.expr | ast.stmt]]:
    """Yield every expression and statement within a function, with where it hangs: (holder, field, index).

    Not what only a compiler sees: a mutant of it would run nowhere (`_interpreted`).
    """

    def walk(
        node: ast.AST, function: str
    ) -> Iterator[tuple[str, ast.AST, str, int | None, ast.expr | ast.stmt]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name in _OF_THE_COMPILER:
                return
            function = f"{function}.{node.name}".lstrip(".")
        left_alone = ["annotation", "returns", "decorator_list", "type_params"]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "cython.compiled":
            left_alone += ["test", "body"]
        for field, value in ast.iter_fields(node):
            if field in left_alone:
                continue
            for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
                if not isinstance(child, ast.AST) or _is_left_alone(child):
                    continue
                if function and isinstance(child, ast.expr | ast.stmt):
                    yield function, node, field, index, child
                yield from walk(child, function)

    yield from walk(tree, "")


def _is_left_alone(node: ast.AST) -> bool:
    """Tell whether a node is only words: a docstring, a line of the log, the text of an error."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or ast.unparse(node).startswith(_LOG_CALLS)
    return isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom)


def _changes(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    """Yield what may stand in place of a node."""
    changed = copy.copy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            for other in _COMPARISONS[type(op)]:
                changed = copy.copy(node)
                changed.ops = [other()]  # type: ignore[attr-defined]
                yield changed
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            changed.op = _ARITHMETIC[type(op)]()  # type: ignore[attr-defined]
            yield changed
        case ast.BoolOp(op=op, values=values):
            changed.op = ast.And() if isinstance(op, ast.Or) else ast.Or()  # type: ignore[attr-defined]
            yield changed
            yield values[0]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.copy_location(ast.Constant(not value), node)
        case ast.Constant(value=int(value)):
            yield ast.copy_location(ast.Constant(value + 1), node)
        case ast.Call(func=ast.Name(id="max" | "min" as name)):
            other_name = "min" if name == "max" else "max"
            changed.func = ast.copy_location(ast.Name(other_name, ast.Load()), node)  # type: ignore[attr-defined]
            yield changed
        case ast.If(test=test) if "cython.compiled" not in ast.unparse(test):
            for value in (True, False):
                changed = copy.copy(node)
                changed.test = ast.copy_location(ast.Constant(value), test)  # type: ignore[attr-defined]
                yield changed
        case ast.Expr() | ast.AugAssign() | ast.Delete():
            yield ast.copy_location(ast.Pass(), node)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.copy_location(ast.Pass(), node)


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def sample(paths: list[Path], count: int, seed: int) -> list[Mutant]:
    """Choose mutants by chance: of every file in proportion to how many it has, three at least; 0 for all."""
    equivalent = set(load_equivalent())
    chance = random.Random(seed)
    every = [[mutant for mutant in mutants_of(path) if mutant.name not in equivalent] for path in paths]
    share = count / max(1, sum(map(len, every))) if count else 1.0
    chosen = []
    for found in every:
        chosen += chance.sample(found, min(len(found), max(3, round(share * len(found)))))
    chance.shuffle(chosen)
    return chosen


def load_equivalent() -> dict[str, str]:
    """Return the mutants that change nothing, each with the reason that stands above it as a comment."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else ():
        if line.startswith("#"):
            reason = line[1:].strip()
        elif line.strip():
            reasons[line.strip()] = reason
    return reasons


def is_killed(copy_of: Path, mutant: Mutant, own_only: bool, limit_s: float) -> bool:
    """Run the tests of a mutant's room in a copy of the checkout, or those of its file; tell whether one noticed."""
    relative = mutant.path.relative_to(ROOT)
    target = copy_of / relative
    unchanged, when = target.read_text(), target.stat()
    target.write_text(mutant.made_in(unchanged))
    first, *others = TESTS[mutant.room]
    names = FIRST.get(str(relative.with_suffix(""))) or FIRST.get(str(relative.parent), ())
    unit_files = _UNIT_FILES.get(mutant.room, "tests/unit/test_{}.py")
    names = [name if "/" in name else unit_files.format(name) for name in names]
    try:
        phases = [names] if own_only and names else [[*names, *first], *others]
        with _interpreted(copy_of, mutant.room):
            return any(_fails(copy_of, arguments, limit_s) for arguments in phases)
    finally:
        target.write_text(unchanged)
        # With its time: what was compiled of it is good again.
        os.utime(target, ns=(when.st_atime_ns, when.st_mtime_ns))


@contextlib.contextmanager
def _interpreted(copy_of: Path, room: str) -> Iterator[None]:
    """Have what is compiled of a room run from its source: an extension would know nothing of the mutant beside it."""
    extensions = [*(copy_of / room).rglob("*.so")]
    for extension in extensions:
        extension.rename(extension.with_suffix(".away"))
    try:
        yield
    finally:
        for extension in extensions:
            extension.with_suffix(".away").rename(extension)


def _fails(copy_of: Path, arguments: list[str], limit_s: float) -> bool:
    """Run tests in a process of their own; tell whether it ended otherwise than well, or not in time."""
    ours, theirs = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_run_tests, args=(copy_of, arguments, theirs))
    process.start()
    theirs.close()
    try:
        return not ours.poll(limit_s) or ours.recv() != 0
    except EOFError:
        return True
    finally:
        # What a mutated broker left running goes with the session of its tests.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()


def _output_of(copy_of: Path) -> Path:
    return copy_of.with_suffix(".txt")


def _run_tests(copy_of: Path, arguments: list[str], result: Connection) -> None:
    """Run tests in a copy of the checkout, in this process, and send pytest's status."""
    os.setsid()
    with _output_of(copy_of).open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(copy_of)
    os.environ.update(PYTHONPATH=str(copy_of / "src"), PYTHONDONTWRITEBYTECODE="1")
    sys.path.insert(0, str(copy_of / "src"))
    # A name that stands twice is run once, where it stands first.
    files = dict.fromkeys(
        str(f) for name in arguments for f in sorted(copy_of.glob(name)) if name.endswith(".py")
    )
    others = [name for name in arguments if not name.endswith(".py")]
    # In file order: a mutant that dies in one order only would be told differently from run to run.
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "--timeout", "30"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what was loaded before
    result.send(int(pytest.main([*options, *files, *others])))


def main() -> int:
    """Run a sample and tell what survived; the status is 1 if more than a tenth of it did."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, help="files or rooms (storage and broker, if none is named)"
    )
    parser.add_argument("--count", type=int, default=200, help="how many mutants; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--again", type=Path, help="only what survived by this file, the output of an earlier run"
    )
    parser.add_argument(
        "--own", action="store_true", help="run the tests of a mutant's own file alone: quick"
    )
    parser.add_argument("--list", action="store_true", help="only name the mutants")
    options = parser.parse_args()
    roots = [(ROOT / path).resolve() for path in options.paths or (Path("storage"), Path("broker"))]
    paths = [file for root in roots for file in ([root] if root.is_file() else sorted(root.rglob("*.py")))]
    chosen = sample(paths, 0 if options.again else options.count, options.seed)
    if options.again:
        text = options.again.read_text()
        chosen = [mutant for mutant in chosen if f"survived  {mutant.name}  (line" in text]
    if options.list:
        print(*(mutant.name for mutant in chosen), sep="\n")
        return 0
    return run(chosen, options.workers, options.own)


def run(chosen: list[Mutant], workers: int, own_only: bool) -> int:
    """Try each mutant, tell what survives as it does, and the counts by file at the end."""
    killed: Counter[str] = Counter()
    survived: list[Mutant] = []
    started = time.monotonic()
    _processes.set_forkserver_preload(_PRELOADED)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch, ThreadPoolExecutor(workers) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            target = Path(scratch) / str(number)
            shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
            copies.put(target)
        limits_s = {}
        for room in {mutant.room for mutant in chosen}:
            begun = time.monotonic()
            for arguments in TESTS[room][: 1 if own_only else None]:
                with _interpreted(target, room):
                    is_broken = _fails(target, arguments, UNCHANGED_LIMIT_S)
                if is_broken:
                    print(_output_of(target).read_text()[-5000:])
                    print(f"the tests of {room} fail without any change: mend that first")
                    return 2
            limits_s[room] = max(LIMIT_LEAST_S, LIMIT_TIMES * (time.monotonic() - begun))

        def attempt(mutant: Mutant) -> tuple[Mutant, bool]:
            copy_of = copies.get()
            try:
                return mutant, is_killed(copy_of, mutant, own_only, limits_s[mutant.room])
            finally:
                copies.put(copy_of)

        for done, (mutant, was_killed) in enumerate(pool.map(attempt, chosen), 1):
            if was_killed:
                killed[mutant.name.partition("::")[0]] += 1
            else:
                survived.append(mutant)
                print(f"survived  {mutant.name}  (line {mutant.line})", flush=True)
            if done % 20 == 0:
                minutes = (time.monotonic() - started) / 60
                print(f"{done}/{len(chosen)} tried, {len(survived)} survived, {minutes:.1f} min", flush=True)
    tried = Counter(mutant.name.partition("::")[0] for mutant in chosen)
    for name, count in sorted(tried.items()):
        print(f"{name:36} {killed[name]:4} of {count:4} killed")
    print(
        f"{'in all':36} {killed.total():4} of {len(chosen):4} killed ({killed.total() / max(1, len(chosen)):.0%})"
    )
    return int(len(survived) > len(chosen) / 10)


if __name__ == "__main__":
    sys.exit(main())
