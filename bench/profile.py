"""A flame graph of the broker under one row: `make profile ROW=one-record-10x5`.

Shows Python and native frames of all threads, for as long as the row's clients run. Each client's run is a picture of
its own, under build/bench/profile/.
"""

import argparse
import functools
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import build, rows
from bench.__main__ import own_folder
from bench.row import OURS
from bench.stage import Rig, Stage

FOLDER = build.FOLDER / "profile"
SAMPLES_A_SECOND = 200
ATTACH_S = 1.0


def main() -> None:
    """Run the row once with the profiler attached."""
    parser = argparse.ArgumentParser(prog="bench.profile", description=__doc__)
    parser.add_argument("--row", required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    spy = Path(sys.executable).with_name("py-spy")
    if not spy.exists():
        raise SystemExit("bench: py-spy is not installed: make profile")
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = own_folder()
    rig = Rig(folder, arguments.scale, warms=False)
    try:
        for row in rows.select(arguments.row, quick=False):
            contender = row.contenders.get(OURS)
            if contender is None:
                raise SystemExit(f"bench: {row.name} compares the broker with itself; profile another row")
            stage = Stage(rig, None, contender.topic, contender.broker)
            prepared = contender.workload.prepare(stage)
            pictures: list[Path] = []
            rig.watch = functools.partial(spying, spy, row.name, pictures)
            print(contender.workload.measure(stage, prepared))
            rig.watch = type(rig).watch_nobody
            stage.strike()
            print(*(picture.relative_to(build.ROOT) for picture in pictures), sep="\n")
    finally:
        rig.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spying(spy: Path, name: str, pictures: list[Path], pid: int) -> Iterator[None]:
    """Sample a process until the end of the block."""
    picture = FOLDER / f"{name}{'-' + str(len(pictures) + 1) if pictures else ''}.svg"
    command = [
        str(spy),
        "record",
        "--native",
        "--threads",
        "--rate",
        str(SAMPLES_A_SECOND),
        "--duration",
        "600",
    ]
    process = subprocess.Popen(
        [*command, "--output", str(picture), "--pid", str(pid)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    time.sleep(ATTACH_S)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1].decode()
    if process.returncode != 0:
        raise RuntimeError(f"py-spy: {said.strip()}")
    pictures.append(picture)


if __name__ == "__main__":
    main()
