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
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "equivalent-mutants.txt"
TIMEOUT_S = 300
NOT_COPIED = (
    ".git",
    ".venv*",
    "__pycache__",
    ".hypothesis",
    ".*_cache",
    "*.egg-info",
)

# Which tests have to notice, quickest first; those that are slower come once these have passed.
TESTS = {
    "storage": (
        ["tests/unit", "-k", "storage or dump"],
        ["tests/fault", "tests/property/test_log_model.py", "-m", "not e2e and not java and not slow"],
    ),
    "broker": (
        ["tests/unit", "-k", "not storage and not bench and not budgets and not docker and not kernel"],
        ["tests/fault", "tests/conformance", "tests/e2e", "-m", "not java and not slow"],
    ),
    "protocol": (
        ["tests/unit", "-k", "wire or records or kernel or frame or validate"],
        ["tests/property", "tests/conformance/test_messages.py"],
    ),
    "config": (["tests/unit", "-k", "config"],),
    "cli": (["tests/unit", "-k", "cli"], ["tests/e2e/test_cli.py"]),
}

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


class Mutant(NamedTuple):
    """One change: the file, the function it is in, what stood there and what stands there now, and the whole text."""

    path: Path
    function: str
    line: int
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """What the change is called, also when the lines around it have moved."""
        return f"{self.path.relative_to(ROOT)}::{self.function}: {self.before} -> {self.after}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    tree = ast.parse(path.read_text())
    for function, holder, field, index, node in _places(tree):
        for changed in _changes(node):
            siblings = getattr(holder, field)
            if index is None:
                setattr(holder, field, changed)
            else:
                siblings[index] = changed
            text = ast.unparse(ast.fix_missing_locations(tree))
            if index is None:
                setattr(holder, field, node)
            else:
                siblings[index] = node
            yield Mutant(path, function, node.lineno, _short(node), _short(changed), text)


def _places(tree: ast.Module) -> Iterator[tuple[str, ast.AST, str, int | None, ast.expr | ast.stmt]]:
    """Yield every expression and statement within a function, with where it hangs: (holder, field, index)."""

    def walk(
        node: ast.AST, function: str
    ) -> Iterator[tuple[str, ast.AST, str, int | None, ast.expr | ast.stmt]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params"):
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
        case ast.If(test=test):
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
    """Choose mutants by chance, every file in proportion to how many it has."""
    equivalent = set(load_equivalent())
    found = {m.name: m for path in paths for m in mutants_of(path) if m.name not in equivalent}
    every = [found[name] for name in sorted(found)]
    return random.Random(seed).sample(every, min(count, len(every))) if count else every


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


def is_killed(copy_of: Path, mutant: Mutant) -> bool:
    """Run the tests of a mutant's room in a copy of the checkout; tell whether one of them noticed."""
    relative = mutant.path.relative_to(ROOT)
    target = copy_of / relative
    target.write_text(mutant.text)
    try:
        return any(_fails(copy_of, arguments) for arguments in TESTS[relative.parts[0]])
    finally:
        target.write_text(mutant.path.read_text())


def _fails(copy_of: Path, arguments: list[str]) -> bool:
    # In file order: a mutant that dies in one order only would be told differently from run to run.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
    ]
    command += ["--timeout", "60", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(copy_of / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=copy_of,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(TIMEOUT_S) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        # What a mutated broker left running goes with the session of its tests.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> int:
    """Run a sample and tell what survived; the status is 1 if more than a tenth of it did."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files or rooms (storage and broker)")
    parser.add_argument("--count", type=int, default=200, help="how many mutants; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="only name the mutants")
    options = parser.parse_args()
    roots = [(ROOT / path).resolve() for path in options.paths or (Path("storage"), Path("broker"))]
    paths = [file for root in roots for file in ([root] if root.is_file() else sorted(root.rglob("*.py")))]
    chosen = sample(paths, options.count, options.seed)
    if options.list:
        print(*(mutant.name for mutant in chosen), sep="\n")
        return 0
    return run(chosen, options.workers)


def run(chosen: list[Mutant], workers: int) -> int:
    """Try each mutant, tell what survives as it does, and the counts by file at the end."""
    killed: Counter[str] = Counter()
    survived: list[Mutant] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch, ThreadPoolExecutor(workers) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            target = Path(scratch) / str(number)
            shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
            copies.put(target)
        for room in {mutant.path.relative_to(ROOT).parts[0] for mutant in chosen}:
            if any(_fails(target, arguments) for arguments in TESTS[room]):
                print(f"the tests of {room} fail without any change: mend that first")
                return 2

        def attempt(mutant: Mutant) -> tuple[Mutant, bool]:
            copy_of = copies.get()
            try:
                return mutant, is_killed(copy_of, mutant)
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
