"""The pytest plugin: a broker, a topic, a clock and faults as fixtures.

A broker is started when a test first uses it. Tests with the same options share one, in each worker of pytest-xdist.
The report of a failed test has what its brokers logged during the test. The plugin is in every run of pytest, so
fixtures import what they need.
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

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True

MARK = "tidelog"
_USES: "pytest.StashKey[list[Use]]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    parser.addini("tidelog_config", "options of the brokers for tests: name=value, one per line", "linelist")
    parser.addini("tidelog_start_timeout", "how many seconds a broker may take to start (30)", default="30")
    parser.getgroup("tidelog").addoption(
        "--tidelog-keep",
        action="store_true",
        help="keep the broker's folder and log if a test fails",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers", "tidelog(config={...}, clock=...): use a broker with these options for the test"
    )


@pytest.fixture(scope="session")
def _tidelog_pool(pytestconfig: pytest.Config) -> "Iterator[Pool]":
    pool = _pool(pytestconfig)
    yield pool
    with _in_words():
        pool.close()


@pytest.fixture(scope="session")
def tidelog_session(_tidelog_pool: "Pool") -> "Broker":
    """The broker of all tests without a mark, for fixtures with a wider scope; tests use `tidelog`."""
    with _in_words():
        return _tidelog_pool.broker({}, None)


@pytest.fixture(name="tidelog")
def _tidelog(request: pytest.FixtureRequest, _tidelog_pool: "Pool") -> "Iterator[Broker]":
    """A broker that tests with the same options share; the clock and faults are reset after each."""
    with _in_words():
        broker = _tidelog_pool.broker(*_marked(request.node))
    use = _used(request, broker)
    _set_attribute(request, "tidelog", broker)
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
    _set_attribute(request, "tidelog_topic", topic)
    yield topic
    with suppress(BrokerError, ControlError):  # the test may have deleted it, or ended the broker
        topic.delete()


@pytest.fixture
def tidelog_clock(request: pytest.FixtureRequest, tidelog: "Broker") -> "Clock":
    """The clock of the test's broker, held; it is released after the test."""
    with _in_words():
        if tidelog.clock.held_ms is None:
            tidelog.clock.hold()
    _set_attribute(request, "tidelog_clock", tidelog.clock)
    return tidelog.clock


@pytest.fixture
def tidelog_faults(request: pytest.FixtureRequest, tidelog: "Broker") -> "Faults":
    """The faults of the test's broker; they are removed after the test."""
    _set_attribute(request, "tidelog_faults", tidelog.faults)
    return tidelog.faults


@pytest.fixture
def fresh_tidelog(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> "Iterator[Broker]":
    """A new broker for the test, which may stop, kill and restart it."""
    pool = _pool(pytestconfig)
    use = None
    try:
        with _in_words():
            broker = pool.broker(*_marked(request.node))
        use = _used(request, broker)
        _set_attribute(request, "fresh_tidelog", broker)
        yield broker
    finally:
        with _in_words(use):
            pool.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log of a failed test's brokers to its report."""
    report = yield
    if report.failed:
        for use in item.stash.get(_USES, ()):
            report.sections += use.report(keep=item.config.getoption("tidelog_keep"))
    return report


def _used(request: pytest.FixtureRequest, broker: "Broker") -> "Use":
    """Record that a test uses a broker."""
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
    """Fail with the message of an error and no traceback, which would only show lines of this plugin.

    If the report of a failed test already has the death of its broker, it is not a second failure.
    """
    from tidelog.cli.control_client import ControlError
    from tidelog.testing.process import BrokerError

    try:
        yield
    except (BrokerError, ControlError, pytest.UsageError) as error:
        if use is None or not use.has_reported_death:
            raise pytest.fail.Exception(str(error), pytrace=False) from None


def _set_attribute(request: pytest.FixtureRequest, name: str, value: object) -> None:
    """Set a fixture's value as an attribute of a unittest test, which takes no arguments."""
    unittest = sys.modules.get("unittest")
    if unittest is not None and isinstance(request.instance, unittest.TestCase):
        setattr(request.instance, name, value)


def _plain(name: str) -> str:
    """Return the name of a test in characters that a topic may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _marked(node: pytest.Item) -> tuple[dict[str, Any], Any]:
    """Return the options and the clock of a test's marks; the nearest mark wins."""
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
        raise pytest.UsageError(f"tidelog_start_timeout: {text!r} is not a number of seconds") from None
