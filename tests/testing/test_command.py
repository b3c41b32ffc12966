"""`tidelog test-control`: the control channel for a shell, and for who writes tests in another language."""

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from tests.support.tested import batch_at, raw
from tidelog.cli.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tidelog.cli.main import app
from tidelog.protocol.error_codes import ErrorCode
from tidelog.testing import Broker, Clock, Topic

pytestmark = pytest.mark.e2e
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tidelog: Broker, tidelog_clock: Clock) -> Run:
    def command(*words: str, data_dir: str = "") -> tuple[int, str, str]:
        where = ["--data-dir", data_dir or str(tidelog.data_dir)]
        result = CliRunner().invoke(app, ["test-control", *words, *where])
        # How an error reads is for `cli.main` to say; what it is for matters here.
        error = result.exception if result.exit_code else None
        code = getattr(error, "exit_code", result.exit_code)
        return code, result.stdout.rstrip(), getattr(error, "format_message", lambda: result.stderr)()

    return command


def test_who_is_there(command: Run, tidelog: Broker) -> None:
    assert f" at {tidelog.bootstrap}, process {tidelog.pid}\n" in command("hello")[1]
    assert json.loads(command("hello", "--json")[1])["bootstrap"] == tidelog.bootstrap


def test_the_clock(command: Run, tidelog_clock: Clock) -> None:
    assert command("set", "2026-03-01T09:00Z", "--json") == (
        OK,
        '{"now_ms": 1772355600000, "held": true}',
        "",
    )
    code, text, _ = command("advance", "1h30m")
    assert (code, text.endswith(" (held)"), tidelog_clock.now_ms) == (OK, True, 1_772_361_000_000)
    assert command("hold", "30m ago", "--json")[1] == '{"now_ms": 1772359200000, "held": true}'
    assert json.loads(command("now", "--json")[1])["now_ms"] == 1_772_359_200_000
    assert command("release")[0] == OK
    assert not json.loads(command("now", "--json")[1])["held"]
    assert json.loads(command("hold", "--json")[1])["held"]


def test_faults(command: Run, tidelog: Broker, tidelog_topic: Topic) -> None:
    fault = [
        "fault",
        "produce",
        "--error",
        "NOT_LEADER_OR_FOLLOWER",
        "--topic",
        tidelog_topic.name,
        "--times",
        "2",
    ]
    assert command(*fault)[1].startswith("fault=")
    with raw(tidelog) as client:
        for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE):
            assert client.produce(tidelog_topic.name, batch_at(1_700_000_000_000)).error_code == code
        seen = [json.loads(line) for line in command("faults-seen", "--json")[1].splitlines()]
        assert [(each["api"], each["error"]) for each in seen] == [("Produce", "NOT_LEADER_OR_FOLLOWER")] * 2
        assert "error=NOT_LEADER_OR_FOLLOWER" in command("faults-seen")[1]
        command("fault", "produce", "fetch", "--always", "--error", "UNKNOWN_SERVER_ERROR")
        command("fill-disk")
        assert command("clear-faults", "--seen") == (OK, "", "")
        assert command("faults-seen", "--json")[1] == ""
        assert client.produce(tidelog_topic.name, batch_at(1_700_000_000_000)).error_code == 0
        assert command("move-coordinator")[1].removeprefix("fault=").isdigit(), (
            "for the client that is connected"
        )
    assert command("raise-leader-epoch", tidelog_topic.name, "-p", "0")[1].startswith("leader_epoch=")
    assert command("free-disk")[0] == OK


def test_topics(command: Run, tidelog: Broker) -> None:
    made = command("create-topic", "of-command", "--partitions", "2", "--config", "retention.ms=5", "--json")
    assert made == (OK, '{"name": "of-command", "partitions": 2}', "")
    assert command("roll") == (OK, "", "")
    assert command("offsets", "of-command", "--json")[1] == '{"log_start_offset": 0, "log_end_offset": 0}'
    assert command("delete-topic", "of-command")[0] == OK
    code, _, error = command("delete-topic", "of-command")
    assert (code, "UNKNOWN_TOPIC_OR_PARTITION" in error) == (FAILED, True)


def test_what_cannot_be_done(command: Run) -> None:
    code, _, error = command("fault", "produce", "--error", "NOT_LEADER")
    assert (code, "did you mean NOT_LEADER_OR_FOLLOWER" in error) == (FAILED, True)
    assert command("advance", "nine")[0] == command("create-topic", "t", "--config", "x")[0] == USAGE
    code, _, error = command("now", data_dir="/nowhere")
    assert (code, "start the broker with --test-control" in error) == (UNREACHABLE, True)
