"""Tidelog beside Apache Kafka, row by row: `make bench`, `make bench ROW=name`, `make bench QUICK=1`.

    python -m bench [--row NAME,...] [--quick] [--only tidelog] [--runs N] [--scale X] [--resume]
    python -m bench --compare COMMIT [--row NAME,...] [--quick] [--runs N] [--scale X]

With `--compare` (`make bench COMPARE=COMMIT`) it runs beside another commit, and fails if a row costs 5 % more CPU.

`--scale 0.01` does everything, smaller: to see that it works, not to measure. A full run takes more than an hour; its
results are written row by row, and `--resume` goes on where one was broken off.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from bench import build, compare, machine, report, rows, suite, table
from bench.stage import Rig

RESULTS = build.ROOT / "bench" / "results"
RUNS, QUICK_RUNS, QUICK_SCALE = 5, 3, 0.25
STOPPING = (signal.SIGINT, signal.SIGTERM)
TOUCHED_BYTES = 12 << 30


def main() -> int:
    """Measure, print, write; return 1 if a row failed to run."""
    arguments = parse()
    selected = rows.select(arguments.row, arguments.quick)
    if arguments.compare:
        try:
            compare.prepare(arguments.compare)
        except (ValueError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"bench: {error}") from None
        selected = list(compare.rows(selected))
    scale = arguments.scale or (QUICK_SCALE if arguments.quick else 1.0)
    runs = arguments.runs or (QUICK_RUNS if arguments.quick else RUNS)
    is_full = (
        not (arguments.row or arguments.quick or arguments.only or arguments.compare)
        and scale == 1.0
        and runs >= RUNS
    )
    for number in STOPPING:  # SIGINT too: a shell lets what runs in its background ignore it
        signal.signal(number, _interrupt)
    folder = own_folder()
    rig = Rig(folder, scale)
    results: list[suite.Result] = []
    try:
        header = report.header(folder, scale, runs, arguments.only)
        path = _results_path(is_full, header)
        if is_full and arguments.resume and path.exists():
            # The results have changed a file of the checkout since, so its commit is the one that the run began with.
            header = json.loads(path.read_text())
            results += header.pop("rows")
        if scale >= QUICK_SCALE:
            machine.touch_page_cache(folder, int(TOUCHED_BYTES * min(1.0, scale)))

        def done(result: suite.Result) -> None:
            results.append(result)
            path.write_text(json.dumps({**header, "rows": results}, indent=1) + "\n")

        have = {result["name"] for result in results}
        suite.measure_all(rig, [row for row in selected if row.name not in have], runs, arguments.only, done)
    except KeyboardInterrupt:
        print("\nbench: interrupted", file=sys.stderr)
    finally:
        for number in STOPPING:  # a second Ctrl-C must not leave a process behind
            signal.signal(number, signal.SIG_IGN)
        rig.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(table.text(results))
    if results:
        print(f"\n{path.relative_to(build.ROOT)}: {table.summary(results)}")
    if is_full and len(results) == len(selected):
        report.write(path)
    is_slower = arguments.compare and any(goal["is_met"] is False for row in results for goal in row["goals"])
    return int(len(results) < len(selected) or is_slower or any(result["failures"] for result in results))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--row", default="", help="names or parts of names, separated by commas")
    parser.add_argument("--quick", action="store_true", help="the headline rows, in some two minutes")
    parser.add_argument(
        "--only", choices=["tidelog", "kafka"], help="leave the other one out; the floor stays"
    )
    parser.add_argument("--compare", metavar="COMMIT", help="beside another commit instead of Kafka")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--scale", type=float)
    parser.add_argument("--resume", action="store_true", help="go on with a full run that was broken off")
    parser.add_argument("--list", action="store_true", help="name all rows")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{row.name:24} {row.title}" for row in rows.ROWS))
        raise SystemExit(0)
    return arguments


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def own_folder() -> Path:
    """Make a folder of this process on the real disk; remove those of processes that are gone."""
    build.FOLDER.mkdir(parents=True, exist_ok=True)
    for left in build.FOLDER.glob("run-*"):
        if not Path(f"/proc/{left.name.removeprefix('run-')}").exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = build.FOLDER / f"run-{os.getpid()}"
    folder.mkdir()
    return folder


def _results_path(is_full: bool, header: dict[str, object]) -> Path:
    """Return where the JSON goes: a full run by its version, which git keeps, any other by its time."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = f"tidelog-{header['version']}" if is_full else f"partial-{time.strftime('%Y%m%d-%H%M%S')}"
    return RESULTS / f"{name}.json"


if __name__ == "__main__":
    sys.exit(main())
