"""The modules of requests, compiled: they serve clients and keep what they promise, and a build that fails says why."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = [pytest.mark.all, pytest.mark.slow, pytest.mark.timeout(3600)]

# Tests that replace nothing of a compiled module, and pass it no stand-ins: clients, models, crashes, mangled frames.
SUITES = (
    "tests/e2e/test_kafka_python.py",
    "tests/e2e/test_aiokafka.py",
    "tests/e2e/test_confluent_kafka.py",
    "tests/e2e/test_fetch_sessions.py",
    "tests/e2e/test_older_clients.py",
    "tests/e2e/test_start_and_stop.py",
    "tests/fault/test_crash_states.py",
    "tests/fault/test_kill_nine.py",
    "tests/property/test_log_model.py",
    "tests/property/test_compaction_model.py",
    "tests/fuzz",
    "tests/testing",
    "--deselect=tests/fault/test_crash_states.py::test_I1_I2_I3_I4_I5_I6_I7_I8_I9_hold_in_what_a_crash_leaves[groups]",
)


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def build(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run("setup.py", "-q", "build_native", f"--folder={folder}", *options, **environment)


def test_compiled_modules_pass_the_tests_that_see_a_broker_from_outside(tmp_path: Path) -> None:
    """With the assertions of the compiled code on."""
    built = build(tmp_path, "--checked")
    assert built.returncode == 0, built.stderr
    compiled = {"TIDELOG_COMPILED": str(tmp_path)}
    said = run("-m", "tidelog", "version", "--verbose", **compiled).stdout
    assert "requests: compiled\n" in said
    done = run("-m", "pytest", "-q", "-n", "2", "-m", "not all and not java", *SUITES, **compiled)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-10_000:]


def test_without_a_compiler_a_line_says_so_and_the_sources_run(tmp_path: Path) -> None:
    built = build(tmp_path / "native", CC="/bin/false")
    assert built.returncode == 1
    said = built.stderr.splitlines()
    assert len(said) == 2
    assert said[1].startswith(
        "setup: the modules of requests were not compiled and will run interpreted, slower: "
    )
    assert "/bin/false" in said[1]
    assert "warning" not in said[1], "what mypyc remarked about a source is not why"
    assert not (tmp_path / "native").exists()
