"""How each example of the documents is checked: it runs, it is compared, or it cannot run, with the reason.

`python -m tests.support.example_kinds` counts them. Owns: these lists. Refuses to know: how an example is run.
"""

import sys
from collections import Counter
from typing import Literal

from tests.support.examples import EXAMPLES, Example

Kind = Literal["run", "compared", "not run", "unmarked"]

RECIPES = "docs/testing-recipes.md"
RUN = ("console", "shell", "prompt", "bash", "properties")
# Pages whose Python runs, and what else they have.
RUN_TOO = {
    "README.md": ("python",),
    "docs/pipeline.md": ("python",),
    "docs/testing.md": ("python", "toml"),
    RECIPES: ("python", "java", "go", "json", "js"),
}
# By their beginnings: pages move, and lines too.
COMPARED = (
    # with lookups in a log that has the records of the drawing
    "time 10:01, by record time   ->  offset 1",
    "10:00 <= record time < 10:02   ->  offsets 0 to 4",
    # with what a broker prints
    "Tidelog 0.1.0 listens on 127.0.0.1:39219; data in /var/lib/tidelog; loops over bytes compiled",
    "2026-03-01T09:00:00.250Z INFO tidelog.broker.topics topic created topic=tides partitions=1",
    "tidelog: /var/lib/tidelog/catalog.sqlite: a newer version of Tidelog wrote this data folder",
    # with the command line of the process of a pass
    "$ pgrep -af compaction.worker",
    # with what the pipeline prints and writes
    "$ cat /tmp/q/orders-0/",
    '"base_offset"',
    "+------",
    "column Key",
    "DamagedLog:",
    "org.apache.spark:",
    '{"topic"',
)
NOT_RUN = {
    "[Unit]": "needs a machine that systemd has started",
    "[default]": "names brokers of the reader's; tests/unit/cli/test_profiles.py",
    "config/      options and their defaults": "a drawing",
    "docker build": "needs Docker; tests/repository/test_docker.py takes the steps without it",
    "docker/build-wheel.sh /tmp/wheels": "compiles for minutes; tests/repository/test_docker.py",
    'frame.where("offset = 1").count()   # 2': "shows a fault of Spark; tests/pipeline/test_source.py",
    "if not consumer._fetcher._next_partition_records:": "goes into a loop of the reader's",
    "make ": "installs from the network, or serves on port 9092",
    "offsets  0 ........ 99 | 100 ...... 199 | 200 ...... 299 | 300 ..": "a drawing",
    "pip install /path/to/a/checkout": "installs from the network",
    "PipelineError:": "a message; tests/pipeline/test_undated.py",
    "scrape_configs:": "needs Prometheus",
    "segments of a log, oldest first": "a drawing",
    "segments:s3://": "names of a place; tests/pipeline/test_remote.py reads from such",
    "useradd": "changes the system",
    "tidelog pipeline JOB ...": "stands for all jobs",
    "tidelog: lake/orders has records": "a message; tests/pipeline/test_ingest.py",
}


def kind(example: Example) -> Kind:
    """Return how an example is checked."""
    if reason(example):
        return "not run"
    if example.text.startswith(COMPARED):
        return "compared"
    languages = RUN + RUN_TOO.get(example.page, ())
    return "run" if example.language in languages else "unmarked"


def reason(example: Example) -> str:
    """Return why an example cannot be run, empty if it can."""
    if example.page == RECIPES and example.lead == "Before:":
        return "what a recipe replaces, for which other packages are needed"
    return next((why for start, why in NOT_RUN.items() if example.text.startswith(start)), "")


def counts() -> str:
    found = Counter(kind(example) for example in EXAMPLES)
    kinds: tuple[Kind, ...] = ("run", "compared", "not run", "unmarked")
    return f"{len(EXAMPLES)} examples: " + ", ".join(f"{found[each]} {each}" for each in kinds)


if __name__ == "__main__":
    for each in EXAMPLES:
        sys.stdout.write(f"{each.place}: {kind(each)}{reason(each) and ': ' + reason(each)}\n")
    sys.stdout.write(counts() + "\n")
