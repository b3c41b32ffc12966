"""`tidelog produce` and `tail` where the broker dies, hangs, has no room, or the topic goes: they end, and say so."""

import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker import COMMAND, Broker, environment, run_to_end, wait_until
from tests.support.raw_client import RawClient
from tests.support.small_disk import fill
from tests.support.workload import one_batch

pytestmark = pytest.mark.e2e

NEW_BROKER = Callable[..., Broker]
GIVEN_UP_S = 30


class Producing:
    """A `tidelog produce` whose standard input stays open."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.process = subprocess.Popen(
            [str(COMMAND), "produce", "t"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment(), "TIDELOG_BOOTSTRAP": broker.address},
        )

    def write(self, count: int, size: int = 10) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((b"x" * size + b"\n") * count)
        self.process.stdin.flush()

    def end(self, timeout_s: float) -> tuple[int, int, str]:
        """Return its status, the count that it printed, and what it said on standard error, once it has ended."""
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        finally:
            self.process.kill()
            self.process.communicate()
        words = out.decode().split()
        assert words[1:] in (["records", "acknowledged"], ["record", "acknowledged"]), (out, err)
        return self.process.returncode, int(words[0]), err.decode()


def wait_for(broker: Broker, count: int) -> None:
    """Wait until topic t has so many records and they are acknowledged; there are two more then."""
    with RawClient(broker) as client:
        wait_until(lambda: client.list_offsets("t", -1).offset >= count, 30)
        # They can be read before they are on disk; what came after them is acknowledged after them.
        for _ in range(2):
            assert client.produce("t", one_batch(1)).error_code == 0


@pytest.mark.slow
def test_produce_ends_where_nothing_is_acknowledged_any_more(
    new_broker: NEW_BROKER, small_disk: Path
) -> None:
    """Whether lines go on coming or not, All at once, since each takes 20 s."""
    with ExitStack() as stack:
        brokers = {name: new_broker(name=name) for name in ("killed", "killed silent", "stopped")}
        brokers["full"] = stack.enter_context(Broker(small_disk / "data")).start()
        producing = {name: Producing(broker) for name, broker in brokers.items()}
        for each in producing.values():
            with RawClient(each.broker) as client:
                client.create("t")
            each.write(1000)
        for broker in brokers.values():
            wait_for(broker, 1000)
        brokers["killed"].kill()
        brokers["killed silent"].kill()
        brokers["stopped"].send_signal(signal.SIGSTOP)
        filler = fill(small_disk)
        began = time.monotonic()
        for name, each in producing.items():
            # One line is on its way, and the next never comes; or more than a producer keeps.
            each.write(1) if name == "killed silent" else each.write(2000, 1000)
        ended = {name: each.end(60) for name, each in producing.items()}
        assert time.monotonic() - began < GIVEN_UP_S
        filler.unlink()
        for name, (status, count, said) in ended.items():
            assert (status, said.count("\n")) == (3, 1), (name, said)
            assert f"line {count + 1} is the first that may not be on disk" in said
            assert count == 1000 if name != "full" else 1000 <= count < 3000
        # What was counted is there, and of what was not counted, nothing came twice.
        with RawClient(brokers["full"]) as client:
            assert ended["full"][1] + 2 <= client.list_offsets("t", -1).offset <= 3000 + 2


@pytest.mark.parametrize("is_gone", [True, False])
def test_ctrl_c_ends_produce_soon_with_the_count(new_broker: NEW_BROKER, is_gone: bool) -> None:
    broker = new_broker()
    producing = Producing(broker)
    with RawClient(broker) as client:
        client.create("t")
    producing.write(500)
    wait_for(broker, 500)
    if is_gone:
        broker.kill()
        producing.write(2000, 1000)
    producing.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    status, count, said = producing.end(20)
    assert time.monotonic() - began < 5  # two seconds, and what a busy machine adds
    assert (status, said) == (130, "tidelog: stopped by Ctrl-C; no more lines were read\n")
    # Answers of a broker that was killed may be lost on their way.
    assert count <= 500 if is_gone else count == 500


@pytest.mark.parametrize("how", [["topics", "list"], ["offsets", "t"], ["tail", "t"]])
def test_ctrl_c_while_nothing_answers(how: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.settimeout(30)
        line = [str(COMMAND), *how, "--bootstrap", f"127.0.0.1:{deaf.getsockname()[1]}"]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        try:
            with deaf.accept()[0] as asking:
                assert asking.recv(4)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
    # `tail` is meant to be ended by it.
    assert (process.returncode, out, err) == (0 if how[0] == "tail" else 130, b"", b"")


def test_tail_of_a_topic_that_is_deleted_says_so_and_does_not_bring_it_back(new_broker: NEW_BROKER) -> None:
    broker = new_broker()
    with RawClient(broker) as client:
        client.create("t")
    line = [str(COMMAND), "tail", "t", "--follow", "--bootstrap", broker.address, "--format", "{value}"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        producing = Producing(broker)
        while process.poll() is None:  # until it follows, what is produced is not printed
            producing.write(1, 1)
            ready, _, _ = select.select([process.stdout], [], [], 0.2)
            if ready:
                break
        producing.process.send_signal(signal.SIGINT)
        producing.end(20)
        deleted = run_to_end("topics", "delete", "t", "--yes", "--bootstrap", broker.address)
        assert deleted.returncode == 0, deleted.stderr
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (
        1,
        b"tidelog: following t from the end; Ctrl-C ends it\ntidelog: topic t was deleted while it was read\n",
    )
    listed = run_to_end("topics", "list", "--json", "--bootstrap", broker.address)
    assert (listed.returncode, listed.stdout) == (0, "")
