"""What one client does to all others, in figures: `python -m tests.fault.neighbours` prints the table.

Each scenario is a client that takes more than its share, or a shortage. While it goes on, a second client in a process
of its own asks every few milliseconds. A row of figures comes out of it, and the bounds that it missed;
test_neighbours.py asserts the bounds.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from tests.fault import greedy_clients, shortages
from tests.support.stage import SCENARIOS, Bounds, Row, measure, place_for

__all__ = ["SCENARIOS", "greedy_clients", "shortages"]

HEAD = (
    "| scenario | RSS before | peak | after | p99 | longest | turn | reader | slow kinds | SIGTERM | missed |\n"
    + "|---" * 11
    + "|"
)


def line(row: Row, bounds: Bounds) -> str:
    """Show a row of the table: MB, milliseconds, seconds for what is slow."""
    slow = ", ".join(f"{kind} {took_s:.2f} s" for kind, took_s in row.slow_s.items())
    cells = [
        row.name,
        *(f"{value:.0f}" for value in (row.before_mb, row.peak_mb, row.after_mb)),
        *(f"{value * 1000:.0f}" for value in (row.p99_s, row.longest_s, row.turn_s, row.reader_s)),
        slow or "-",
        f"{row.stop_s:.1f}",
        "; ".join(row.misses(bounds)) or "-",
    ]
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def main() -> None:
    """Print the table of all scenarios, or of those named."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="of scenarios; all without")
    names = parser.parse_args().names or list(SCENARIOS)
    print("Memory in MB, times in ms, SIGTERM in s.\n\n" + HEAD, flush=True)
    for name in names:
        what = SCENARIOS[name]
        root = Path(tempfile.mkdtemp(prefix="neighbours-"))
        try:
            with place_for(what, root / "place") as folder:
                print(line(measure(what, folder), what.bounds), flush=True)
        except OSError as error:
            print(f"| {name} | skipped: {error} |", flush=True)
        finally:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
