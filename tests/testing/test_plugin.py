"""The pytest plugin, as whoever has installed Tidelog finds it: each fixture, the mark, what is told of a failure."""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Protocol

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.e2e

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-W", "error", "-W", "ignore::DeprecationWarning")
HEAD = """
import os, signal
import pytest
from tests.support.tested import batch_at, raw

def produce(topic):
    with raw(topic.broker) as client:
        return client.produce(topic.name, batch_at(1_700_000_000_000)).error_code
"""


class Run(Protocol):
    """Runs tests that are written here, with arguments."""

    def __call__(self, code: str, *arguments: str, ini: str = "") -> pytest.RunResult: ...


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    # What our own tests are run with is not for these.
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(code: str, *arguments: str, ini: str = "") -> pytest.RunResult:
        pytester.makeini(f"[pytest]\n{ini}")
        pytester.makepyfile(HEAD + code)
        # In this process, where all is loaded, and without a timeout of its own. What a C library of this process
        # writes to its standard error is not captured: it may come from a client that another test has left.
        return pytester.runpytest_inprocess(*QUIET, "-p", "no:timeout", "--capture=sys", *arguments)

    return run


def test_tests_share_a_broker_and_find_it_as_it_was_at_first(run: Run) -> None:
    result = run("""
import tidelog as package
pids, names = set(), set()

def test_one(tidelog, tidelog_topic, tidelog_clock, tidelog_faults):
    assert package.__version__
    pids.add(tidelog.pid)
    names.add(tidelog_topic.name)
    assert tidelog_topic.bootstrap == tidelog.bootstrap
    assert tidelog_topic.name.startswith("test_one-")
    assert tidelog_clock.held_ms == tidelog_clock.now_ms
    tidelog_clock.advance(days=3)
    tidelog_faults.always("produce", error="NOT_LEADER_OR_FOLLOWER")
    assert produce(tidelog_topic) == 6
    assert len(tidelog_faults.seen()) == 1

@pytest.mark.parametrize("odd", ["a b/ü"])
def test_two(tidelog, tidelog_topic, odd, tidelog_session):
    pids.add(tidelog.pid)
    assert tidelog_session is tidelog
    assert len(pids) == 1
    assert tidelog.clock.held_ms is None
    assert tidelog.faults.seen() == []
    assert produce(tidelog_topic) == 0
    assert not (tidelog.data_dir / f"{names.pop()}-0").exists()
    tidelog.kill()

def test_three(tidelog):
    assert tidelog.pid not in pids
    assert tidelog.topic().records() == []

@pytest.fixture(scope="module")
def prepared(tidelog_session):
    return tidelog_session.topic()

def test_four(prepared, tidelog):
    assert produce(prepared) == 0
    assert prepared.broker is tidelog

class TestFive:
    def test_it(self, fresh_tidelog, tidelog):
        assert fresh_tidelog.pid != tidelog.pid
        fresh_tidelog.kill()
        fresh_tidelog.restart()
""")
    result.assert_outcomes(passed=5)


def test_a_mark_has_a_broker_run_with_its_options_and_those_of_the_ini_file(run: Run) -> None:
    result = run(
        """
pids = {}

@pytest.mark.tidelog(config={"num.partitions": 3, "auto.create.topics.enable": False}, clock="2026-03-01T09:00Z")
class TestMarked:
    def test_one(self, tidelog, tidelog_clock):
        assert tidelog.config["num.partitions"] == "3"
        assert tidelog.config["auto.create.topics.enable"] == "false"
        assert tidelog.config["log.retention.ms"] == "5000000000"
        assert tidelog.topic(partitions=-1).partitions == 3
        assert tidelog_clock.now_ms == 1_772_355_600_000
        tidelog_clock.advance(days=1)
        pids["marked"] = tidelog.pid

    def test_two(self, tidelog):
        assert tidelog.clock.now_ms == 1_772_355_600_000
        assert tidelog.pid == pids["marked"]

    @pytest.mark.tidelog(config={"num.partitions": 4})
    def test_the_nearest_mark_is_heard(self, tidelog):
        assert tidelog.config["num.partitions"] == "4"
        assert tidelog.config["auto.create.topics.enable"] == "false"
        assert tidelog.clock.held_ms

def test_unmarked(tidelog):
    assert tidelog.pid != pids["marked"]
    assert tidelog.topic(partitions=-1).partitions == 1

@pytest.mark.tidelog(konfig=1)
def test_wrong(tidelog):
    pass
""",
        "--strict-markers",
        ini="tidelog_config =\n  log.retention.ms = 5000000000\ntidelog_start_timeout = 60",
    )
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(
        ["unknown argument konfig=1: *::test_wrong: write @pytest.mark.tidelog(config={...}, clock=...)"]
    )


def test_a_failure_shows_what_the_broker_logged_meanwhile_and_keep_keeps_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    result = run(
        """
def test_before(tidelog):
    tidelog.topic("of-before")

def test_it(tidelog):
    tidelog.topic("of-it")
    assert False

def test_fresh(fresh_tidelog):
    fresh_tidelog.topic("of-fresh")
    assert False
""",
        "--tidelog-keep",
    )
    result.assert_outcomes(passed=1, failed=2)
    text = result.stdout.str()
    assert re.search(r"-+ tidelog -+\nkept: .*\n.*topic created topic=of-it", text)
    assert "of-fresh" in text
    assert "of-before" not in text
    kept = re.findall(r"kept: the data in (\S+), the log in (\S+)", text)
    assert len(kept) == 2
    for data, log in kept:
        assert (Path(data) / "meta.properties").exists()
        assert "listening" in Path(log).read_text()


def test_nothing_is_kept_unless_it_is_asked_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run("def test_it(tidelog):\n    assert False\n").assert_outcomes(failed=1)
    assert not [name for name in os.listdir(tmp_path) if name.startswith("tidelog")]


def test_a_broker_that_dies_fails_the_test_and_the_next_gets_another(run: Run) -> None:
    result = run("""
def test_it(tidelog, tidelog_topic):
    os.kill(tidelog.pid, signal.SIGKILL)

def test_hears_of_it(tidelog):
    os.kill(tidelog.pid, signal.SIGKILL)
    os.waitid(os.P_PID, tidelog.pid, os.WEXITED | os.WNOWAIT)
    tidelog.topic()

def test_next(tidelog, tidelog_topic):
    assert produce(tidelog_topic) == 0
""")
    result.assert_outcomes(passed=2, failed=1, errors=1)
    text = result.stdout.str()
    assert re.search(
        r"_ ERROR at teardown of test_it _+\nthe broker has died: signal 9; the end of its log", text
    )
    said = "BrokerDied: the broker has died: signal 9; the end of its log"
    assert len(re.findall(rf"^E .*{said}", text, re.MULTILINE)) == 1
    assert re.search(r"-+ tidelog -+\nthe broker has died: signal 9\n", text)


@pytest.mark.parametrize("fixture", ["tidelog", "fresh_tidelog"])
def test_a_failure_that_tells_of_the_brokers_death_is_the_only_one(run: Run, fixture: str) -> None:
    result = run(f"""
def test_it({fixture}):
    os.kill({fixture}.pid, signal.SIGKILL)
    os.waitid(os.P_PID, {fixture}.pid, os.WEXITED | os.WNOWAIT)
    assert False, "of its own"
""")
    result.assert_outcomes(failed=1)
    assert re.search(r"-+ tidelog -+\nthe broker has died: signal 9\n", result.stdout.str())


def test_each_worker_of_xdist_has_a_broker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two processes load what they need, and no more.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for variable in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(variable)
    pytester.makepyfile("""
import pytest

@pytest.mark.parametrize("n", range(4))
def test_it(tidelog_topic, n, tmp_path_factory):
    assert tidelog_topic.records() == []
    (tmp_path_factory.getbasetemp().parent / f"broker-{tidelog_topic.broker.pid}").touch()

def test_failing(tidelog):
    tidelog.topic("of-it")
    assert False
""")
    plugins = ("-p", "xdist", "-p", "tidelog.testing.plugin")
    result = pytester.runpytest_subprocess(*plugins, "-n", "2", "--basetemp=base", "-W", "error", timeout=120)
    result.assert_outcomes(passed=4, failed=1)
    assert len(list(Path("base").glob("broker-*"))) == 2
    result.stdout.fnmatch_lines(["*topic created topic=of-it*"])


def test_asyncio_and_anyio_and_unittest(run: Run) -> None:
    result = run(
        """
import asyncio, unittest
from tidelog.testing import Broker
from aiokafka import AIOKafkaProducer

async def send(topic):
    producer = AIOKafkaProducer(bootstrap_servers=topic.bootstrap)
    await producer.start()
    try:
        await producer.send_and_wait(topic.name, b"x")
    finally:
        await producer.stop()
    assert [record.value for record in topic.records()] == [b"x"]

async def test_asyncio(tidelog_topic):
    await send(tidelog_topic)

async def test_a_broker_of_its_own():
    async with Broker() as broker:
        await send(broker.topic())

@pytest.mark.anyio
async def test_anyio(tidelog_topic, anyio_backend):
    await send(tidelog_topic)

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.usefixtures("tidelog", "tidelog_topic", "tidelog_clock", "tidelog_faults", "fresh_tidelog")
class TestCase(unittest.TestCase):
    def test_it(self):
        assert produce(self.tidelog_topic) == 0
        assert self.tidelog_clock.now_ms == self.tidelog.clock.held_ms
        assert self.fresh_tidelog.pid != self.tidelog.pid
        assert self.tidelog_faults.seen() == []

class TestOwn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = cls.enterClassContext(Broker())

    def test_it(self):
        assert produce(self.broker.topic()) == 0
""",
        "-p",
        "anyio",
        ini="asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function",
    )
    result.assert_outcomes(passed=5)


def test_a_start_that_fails_is_an_error_with_the_brokers_words(run: Run) -> None:
    result = run(
        """
@pytest.mark.tidelog(config={"num.partitionz": 3})
def test_it(tidelog):
    pass
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["num.partitionz=3 *did you mean num.partitions?: the broker did not start*"])
    result.stdout.no_fnmatch_line("*another exception*")


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        ('config={"num.partitionz": 3}', "num.partitionz=3 (command line): no such option"),
        ("config='num.partitions=3'", "config='num.partitions=3' is not a dict"),
        ("'num.partitions=3'", "'num.partitions=3' has no name"),
        ("clok='soon'", "unknown argument clok='soon'"),
        ("clock='soon'", "clock='soon' is not a time"),
        ("clock='2026-03-01T09:00'", "clock='2026-03-01T09:00' has no time zone"),
    ],
)
@pytest.mark.parametrize("kind", ["", "async "])
def test_a_mark_that_cannot_be_honoured_says_why_and_nothing_else(
    run: Run, mark: str, why: str, kind: str
) -> None:
    result = run(
        f"@pytest.mark.tidelog({mark})\n{kind}def test_it(tidelog):\n    pass\n",
        ini="asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function",
    )
    result.assert_outcomes(errors=1)
    lines = result.outlines
    heading = next(n for n, line in enumerate(lines) if "ERROR at setup of test_it" in line)
    assert why in lines[heading + 1]
    end = next(n for n, line in enumerate(lines) if "short test summary info" in line)
    assert all(line.startswith("    tidelog: ") for line in lines[heading + 2 : end]), (
        "the end of the log, at most"
    )


def test_an_await_that_fails_shows_the_line_of_the_test(run: Run) -> None:
    result = run(
        """
from tidelog.testing import Broker

async def test_it():
    async with Broker(config={"num.partitionz": 3}):
        pass
""",
        ini="asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function",
    )
    result.assert_outcomes(failed=1)
    (raised,) = [line for line in result.outlines if line.startswith(">")]
    assert raised.strip("> ") == 'async with Broker(config={"num.partitionz": 3}):'
    assert not [line for line in result.outlines if "threads.py" in line]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("tidelog.topic('bad/name')", "Topic name is invalid"),
        ("tidelog.topic().records(partition=9)", "there is no partition 9"),
        ("tidelog.clock.advance(days=-1)", "a clock advances by 0 ms or more"),
        ("tidelog.clock.set('soon')", "is not a time"),
        ("tidelog.faults.always('produse', error='X')", "did you mean Produce?"),
    ],
)
def test_a_traceback_ends_at_the_line_of_the_test(run: Run, call: str, why: str) -> None:
    result = run(f"def test_it(tidelog):\n    {call}\n")
    result.assert_outcomes(failed=1)
    (raised,) = [line for line in result.outlines if line.startswith(">")]
    assert raised.strip("> ") == call
    assert why in "\n".join(line for line in result.outlines if line.startswith("E  "))


def test_the_plugin_loads_nothing_that_pytest_has_not_loaded(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_COMPILED", "0")  # finding compiled modules takes a module of its own
    code = (
        "import sys, pytest; before = set(sys.modules); import tidelog.testing.plugin; "
        "print(sorted(set(sys.modules) - before))"
    )
    result = pytester.run(sys.executable, "-c", code)
    assert result.outlines == ["['tidelog', 'tidelog.testing', 'tidelog.testing.plugin']"]
