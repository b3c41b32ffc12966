"""The pytest plugin: a broker, a topic, a clock and faults as fixtures. Nothing is started before a test asks for it.

Tests share brokers by the options that they ask for, in each worker of pytest-xdist. The report of a failed test shows
what its brokers have logged meanwhile. The plugin loads with every run of pytest, so the fixtures load what they need.
"""

import re
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.testing import Broker, Clock, Faults, Topic
    from tidelog.testing.pool import Pool, Use

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True

MARK = "tidelog"
_USES: "pytest.StashKey[list[Use]]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    parser.addini(
        "tidelog_config", "options of the brokers that tests use: name=value, a line each", "linelist"
    )
    parser.addini("tidelog_start_timeout", "seconds within which a broker is to be ready (30)", default="30")
    parser.getgroup("tidelog").addoption(
        "--tidelog-keep",
        action="store_true",
        help="keep the folder and the log of the broker of a test that fails",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", "tidelog(config={...}, clock=...): have the test's broker run with these options"
    )


@pytest.fixture(scope="session")
def _tidelog_pool(pytestconfig: pytest.Config) -> "Iterator[Pool]":
    pool = _pool(pytestconfig)
    yield pool
    with _in_words():
        pool.close()


@pytest.fixture(scope="session")
def tidelog_session(_tidelog_pool: "Pool") -> "Broker":
    """The broker of all tests without a mark, for fixtures of a wider scope; a test asks for `tidelog`."""
    with _in_words():
        return _tidelog_pool.broker({}, None)


@pytest.fixture(name="tidelog")
def _tidelog(request: pytest.FixtureRequest, _tidelog_pool: "Pool") -> "Iterator[Broker]":
    """A broker, shared by the tests that ask for the same options; the clock and faults are put back after each."""
    with _in_words():
        broker = _tidelog_pool.broker(*_marked(request.node))
    use = _used(request, broker)
    _hand(request, "tidelog", broker)
    yield broker
    with _in_words(use):
        _tidelog_pool.put_back(broker)


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest, tidelog: "Broker") -> "Iterator[Topic]":
    """A new topic, deleted after the test."""
    from tidelog.testing import BrokerError, ControlError
    from tidelog.testing.broker import new_name

    with _in_words():
        topic = tidelog.topic(new_name(_plain(request.node.name)))
    _hand(request, "tidelog_topic", topic)
    yield topic
    with suppress(BrokerError, ControlError):  # it, or its broker, may be gone
        topic.delete()


@pytest.fixture
def tidelog_clock(request: pytest.FixtureRequest, tidelog: "Broker") -> "Clock":
    """The clock of the test's broker, held; it goes on after the test."""
    with _in_words():
        if tidelog.clock.held_ms is None:
            tidelog.clock.hold()
    _hand(request, "tidelog_clock", tidelog.clock)
    return tidelog.clock


@pytest.fixture
def tidelog_faults(request: pytest.FixtureRequest, tidelog: "Broker") -> "Faults":
    """The faults of the test's broker; after the test there are none."""
    _hand(request, "tidelog_faults", tidelog.faults)
    return tidelog.faults


@pytest.fixture
def fresh_tidelog(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> "Iterator[Broker]":
    """A broker of the test's own, which it may stop, kill and restart."""
    pool = _pool(pytestconfig)
    use = None
    try:
        with _in_words():
            broker = pool.broker(*_marked(request.node))
        use = _used(request, broker)
        _hand(request, "fresh_tidelog", broker)
        yield broker
    finally:
        with _in_words(use):
            pool.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what a test's brokers have logged meanwhile to the report of its failure."""
    report = yield
    if report.failed:
        for use in item.stash.get(_USES, ()):
            report.sections += use.report(keep=item.config.getoption("tidelog_keep"))
    return report


def _used(request: pytest.FixtureRequest, broker: "Broker") -> "Use":
    """Take note that a test uses a broker from now on."""
    from tidelog.testing.pool import Use

    use = Use(broker)
    request.node.stash.setdefault(_USES, []).append(use)
    return use


def _pool(config: pytest.Config) -> "Pool":
    from tidelog.testing.pool import Pool

    with _in_words():
        return Pool(_ini_config(config), _ini_timeout_s(config))


@contextmanager
def _in_words(use: "Use | None" = None) -> Iterator[None]:
    """Fail with the words of an error alone: there is no line of the user's to show in a fixture of ours.

    The death of a broker is no second failure of a test whose report shows it.
    """
    from tidelog.cli.control_client import ControlError
    from tidelog.testing.process import BrokerError

    try:
        yield
    except (BrokerError, ControlError, pytest.UsageError) as error:
        if use is None or not use.has_reported_death:
            raise pytest.fail.Exception(str(error), pytrace=False) from None


def _hand(request: pytest.FixtureRequest, name: str, value: object) -> None:
    """Have a test of unittest, which takes no arguments, find a fixture's value as an attribute."""
    unittest = sys.modules.get("unittest")
    if unittest is not None and isinstance(request.instance, unittest.TestCase):
        setattr(request.instance, name, value)


def _plain(name: str) -> str:
    """Return a test's name as that of a topic may be."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _marked(node: pytest.Item) -> tuple[dict[str, Any], Any]:
    """Return the options and the clock that the marks of a test ask for, the nearest first."""
    config: dict[str, Any] = {}
    clock = None
    for mark in node.iter_markers(MARK):
        if mark.args:
            raise _wrong_mark(node, f"{mark.args[0]!r} has no name")
        if unknown := sorted(mark.kwargs.keys() - {"config", "clock"}):
            raise _wrong_mark(node, f"unknown argument {unknown[0]}={mark.kwargs[unknown[0]]!r}")
        wanted = mark.kwargs.get("config") or {}
        if not isinstance(wanted, Mapping):
            raise _wrong_mark(node, f"config={wanted!r} is not a dict")
        config = {**wanted, **config}
        clock = mark.kwargs.get("clock") if clock is None else clock
    if clock is not None:
        from tidelog.testing.clock import to_ms

        try:
            to_ms(clock)
        except ValueError as error:
            raise _wrong_mark(node, f"clock={error}") from None
    return config, clock


def _wrong_mark(node: pytest.Item, why: str) -> pytest.UsageError:
    return pytest.UsageError(f"{why}: {node.nodeid}: write @pytest.mark.tidelog(config={{...}}, clock=...)")


def _ini_config(config: pytest.Config) -> dict[str, str]:
    options = {}
    for line in config.getini("tidelog_config"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"tidelog_config: {line}: write it as name=value")
        options[name.strip()] = value.strip()
    return options


def _ini_timeout_s(config: pytest.Config) -> float:
    text = config.getini("tidelog_start_timeout")
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"tidelog_start_timeout: {text!r} is no number of seconds") from None
