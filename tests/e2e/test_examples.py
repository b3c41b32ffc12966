"""Every example of README.md, CONTRIBUTING.md and docs/ runs, is compared, or is listed with the reason.

A command runs in a folder of its own beside a broker on a free port, and prints what its page shows. README.md is run
in test_readme.py, docs/pipeline.md in tests/pipeline, and docs/testing-recipes.md in tests/testing.
"""

import configparser
import json
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from kafka import KafkaProducer

from bench.kafka import free_port
from tests.support.broker import Broker, run_to_end
from tests.support.example_kinds import COMPARED, NOT_RUN, RECIPES, kind
from tests.support.example_stage import OF_ITS_OWN, Stage
from tests.support.examples import EXAMPLES, Example, is_as_shown
from tests.support.paths import ROOT
from tidelog.cli.main import app
from tidelog.testing import Broker as WithClock

pytestmark = pytest.mark.e2e

COMMANDS = ("console", "shell")
# Pages whose examples go on where the one before has ended.
TUTORIALS = ("docs/first-steps.md",)
# The page whose Python is tests and scripts for them, and whose TOML configures them.
TESTS = "docs/testing.md"
RUN_ELSEWHERE = ("README.md", "docs/pipeline.md", RECIPES)
HERE = [example for example in EXAMPLES if example.page not in RUN_ELSEWHERE and kind(example) == "run"]
# Commands whose output depends on the machine: they must run, whatever they print.
DIFFERS_BY_MACHINE = ("$ tidelog doctor", "$ tidelog version --verbose")
# Outputs in which a figure differs from run to run.
FIGURES_DIFFER = (
    "$ tidelog backup",
    "$ tidelog explain compaction",
    "$ tidelog explain range orders",
    "$ tidelog groups list --held",
    "$ tidelog log-dirs",
    "$ tidelog restore",
)


def one(start: str) -> Example:
    (found,) = [example for example in EXAMPLES if example.text.startswith(start)]
    return found


def test_every_example_runs_or_is_compared_or_has_a_reason() -> None:
    found = [f"{example.place}: {example.first}" for example in EXAMPLES if kind(example) == "unmarked"]
    assert found == [], "run them, or list them in tests/support/example_kinds.py with the reason"
    texts = [example.text for example in EXAMPLES]
    starts = [*NOT_RUN, *COMPARED, *OF_ITS_OWN, *DIFFERS_BY_MACHINE, *FIGURES_DIFFER]
    unused = [start for start in starts if not any(text.startswith(start) for text in texts)]
    assert unused == [], "no page has these lines any more"


# -- what does not run can at least be read ----------------------------------------------------------------------------


def test_configurations_of_other_programs_are_well_formed() -> None:
    assert yaml.safe_load(one("scrape_configs:").text)
    assert tomllib.loads(one("[default]").text)
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(one("[Unit]").text)
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert unit["Service"]["ExecStart"].split()[1] == "serve"


def test_python_that_does_not_run_compiles() -> None:
    for start in ("frame.where", "if not consumer"):
        assert compile(one(start).text, start, "exec")


def test_make_knows_what_pages_make() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = [
        line.split()[1]
        for example in EXAMPLES
        for line in example.text.splitlines()
        if line.startswith("make ")
    ]
    assert made
    assert set(made) <= set(targets)


def test_scripts_that_pages_name_exist() -> None:
    scripts = [line.split()[0] for line in one("docker/").text.splitlines()]
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)


# -- commands ----------------------------------------------------------------------------------------------------------


def differences(stage: Stage, example: Example) -> list[str]:
    """Run an example; return which commands failed, or did not print what their page shows."""
    found = []
    figures = not example.text.startswith(FIGURES_DIFFER)
    is_compared = example.language == "console" and not example.text.startswith(DIFFERS_BY_MACHINE)
    # Records that have a time of a command's show it; all other times are of the present.
    days = {day for command, _ in example.commands for day in re.findall(r"\d{4}-\d\d-\d\d", command)}
    for command, shown, status, printed in stage.run(example):
        is_error = shown.startswith("tidelog: ")
        if is_compared and not is_as_shown(shown, printed, figures=figures, days=days):
            found.append(f"{example.place}: {command}\n{shown}\nprinted:\n{printed}")
        elif is_error != (status != 0) and not example.text.startswith(DIFFERS_BY_MACHINE):
            found.append(f"{example.place}: {command}\nexit code {status}:\n{printed}")
    return found


def in_one(page: str, found: list[Example]) -> list[Example]:
    """Make one example of those of a tutorial."""
    if page not in TUTORIALS:
        return found
    texts = [f"$ {command}\n{shown}" for example in found for command, shown in example.commands]
    return [found[0]._replace(language="console", text="".join(texts))]


PAGES = sorted({example.page for example in HERE if example.language in COMMANDS})


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_their_page_shows(page: str, tmp_path: Path) -> None:
    consoles = in_one(
        page, [example for example in HERE if example.page == page and example.language in COMMANDS]
    )
    found: list[str] = []
    with Stage(tmp_path) as stage:
        for example in consoles:
            if page in TUTORIALS:
                stage.begin()
            else:
                stage.set_for(example)
            found += differences(stage, example)
    assert found == [], "\n\n".join(["", *found])


def test_a_start_accepts_the_recipe_of_options(tmp_path: Path) -> None:
    (recipe,) = [example.text for example in HERE if example.language == "properties"]
    for shown, free in (
        ("/var/lib/tidelog", tmp_path / "data"),
        ("//:9092", f"//:{free_port()}"),
        ("9464", free_port()),
    ):
        recipe = recipe.replace(shown, str(free))
    (tmp_path / "server.properties").write_text(recipe)
    done = run_to_end("serve", "--check", "--config-file", str(tmp_path / "server.properties"))
    assert done.returncode == 0, done.stderr
    assert "log.retention.bytes" in done.stdout


def test_tests_of_a_page_run_as_they_are_written(tmp_path: Path) -> None:
    pages = [example for example in EXAMPLES if example.page == TESTS]
    tests = [example for example in pages if example.language == "python" and "def test_" in example.text]
    scripts = [example for example in pages if example.language == "python" and example not in tests]
    for example in tests:
        (tmp_path / f"test_{example.line}.py").write_text(example.text)
    (configuration,) = [example.text for example in pages if example.language == "toml"]
    (tmp_path / "pyproject.toml").write_text(configuration)
    for number, example in enumerate(scripts):
        (tmp_path / f"script{number}.py").write_text(example.text)
        subprocess.run([sys.executable, f"script{number}.py"], cwd=tmp_path, check=True, timeout=150)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False)
    assert f"{len(tests)} passed" in done.stdout, done.stdout + done.stderr


def test_the_message_about_another_schema_is_as_shown(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    broker.stop()
    catalogue = broker.data_dir / "catalog.sqlite"
    with closing(sqlite3.connect(catalogue)) as database:
        database.execute("PRAGMA user_version = 3")
    printed = run_to_end("serve", "--data-dir", str(broker.data_dir), "--port", "0").stderr.splitlines()[-1]
    message = one("tidelog: /var/lib/tidelog/catalog.sqlite").text
    assert is_as_shown(message.replace("/var/lib/tidelog/catalog.sqlite", str(catalogue)), printed)


# -- drawings of the two clocks ---------------------------------------------------------------------------------------

TIMES = r"((?:\d\d:\d\d[,.]\s)+)"


def drawn_times(page: str) -> tuple[list[str], list[str]]:
    """Return the record times and the append times of a page's drawing, as its description has them."""
    description = " ".join((ROOT / page).read_text().split())
    (found,) = re.findall(rf"Record times of offsets 0 to 5: {TIMES}Append times: {TIMES}", description)
    record, append = (re.findall(r"\d\d:\d\d", times) for times in found)
    return record, append


def ms(time_of_day: str) -> int:
    return int(datetime.fromisoformat(f"2026-03-01T{time_of_day}Z").timestamp() * 1000)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the records of the drawing."""
    record, append = drawn_times("docs/time.md")
    folder = tmp_path_factory.mktemp("drawn") / "data"
    with WithClock(clock=ms(append[0]), data_dir=folder) as broker:
        topic = broker.topic("tides", **{"retention.ms": -1})
        with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as to:
            for made, appended in zip(record, append, strict=True):
                broker.clock.set(ms(appended))
                to.send(topic.name, b"reading", timestamp_ms=ms(made)).get(60)
    return folder


def answer(folder: Path, *arguments: object) -> dict[str, Any]:
    """Ask `tidelog explain`; return its answer for the one partition."""
    words = ["explain", *map(str, arguments), "--data-dir", str(folder), "--json"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout.splitlines()[-1])


def test_lookups_by_both_clocks_find_what_is_drawn(drawn: Path) -> None:
    assert drawn_times("README.md") == drawn_times("docs/time.md")
    shown = (ROOT / "docs" / "time.md").read_text()
    lookups = re.findall(r"time (\d\d:\d\d), by (\w+) time +-> +offset (\d)", shown)
    described = re.search(
        r"after (\d\d:\d\d) is offset (\d) by record time, and offset (\d) by append time", shown
    )
    assert described
    at, *offsets = described.groups()
    lookups += [(at, clock, offset) for clock, offset in zip(("record", "append"), offsets, strict=True)]
    ranges = re.findall(r"(\d\d:\d\d) <= (\w+) time < (\d\d:\d\d) +-> +offsets? (\d)(?: to (\d))?", shown)
    assert len(lookups) >= 6
    assert len(ranges) >= 2
    for at, clock, offset in lookups:
        found = answer(drawn, "offset", "tides", "--at", f"@{ms(at)}", "--clock", clock)
        assert (at, clock, found["offset"]) == (at, clock, int(offset))
    for start, clock, end, first, last in ranges:
        when = ("--from", f"@{ms(start)}", "--to", f"@{ms(end)}", "--clock", clock)
        found = answer(drawn, "range", "tides", *when)
        assert (found["offset"], found["end_offset"] - 1) == (int(first), int(last or first))
