"""Time lookups over the wire, each held against a linear scan: `python -m bench.lookups`.

Fills one topic in order and one with 1 % of its records up to an hour late, asks for random times, and compares every
answer with what a scan of all timestamps finds. Prints lookups a second. How fast many clients are answered, beside
Kafka, is measured by `make bench ROW=lookups`.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from bench import build
from bench.brokers import Tidelog
from bench.fill import Filled, Shape, fill, scan
from bench.wire import Wire


def check(wire: Wire, topic: str, filled: Filled, lookups: int, rng: np.random.Generator) -> float:
    """Ask for random times, check every answer, and return lookups a second."""
    times = filled.times
    wanted = rng.integers(times.min() - 1000, times.max() + 1000, lookups)
    started = time.perf_counter()
    answers = [wire.offset_at(topic, int(when)) for when in wanted]
    elapsed = time.perf_counter() - started
    wrong = [
        (int(when), answer, right)
        for when, answer, right in zip(wanted, answers, scan(times, wanted), strict=True)
        if answer != right
    ]
    assert not wrong, f"{len(wrong)} of {lookups} answers are wrong, the first: {wrong[0]}"
    return lookups / elapsed


def main() -> None:
    """Fill, ask, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--lookups", type=int, default=1000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(7)
    build.FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build.FOLDER) as folder:
        broker = Tidelog(Path(folder) / "data")
        try:
            broker.start()
            with Wire(broker.port) as wire:
                for topic, shape in (("in-order", Shape()), ("late", Shape(late=0.01))):
                    wire.create_topics([topic])
                    filled = fill(wire, topic, shape, arguments.records, rng)
                    rates = sorted(check(wire, topic, filled, arguments.lookups, rng) for _ in range(5))
                    print(
                        f"{topic}: {len(filled.times):,} records, {arguments.lookups} lookups x 5, equal to a scan, "
                        f"median {rates[2]:,.0f}/s [{rates[0]:,.0f}-{rates[-1]:,.0f}], one after another"
                    )
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
