"""What the system has not got, for a while: descriptors, space on the disk; and that all is well once it has."""

import os
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.support.broker import Broker
from tests.support.builders import produce_request
from tests.support.raw_client import PRODUCE, RawClient
from tests.support.stage import SMALL_DISK_BYTES, Stage, scenario
from tests.support.workload import START_MS
from tidelog.protocol.records.build import Record, build_batch

ONE = build_batch([Record(0, START_MS, None, b"x" * 100)])


@scenario()
def descriptors_run_out(stage: Stage) -> None:
    """Connections take the last descriptor while commits of four logs go on; then they go."""
    pid = stage.broker.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with RawClient(stage.broker) as client:
        assert client.create("spare", 4).error_code == 0
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid) + 40, hard))
        with stage.watched(), ExitStack() as late, ExitStack() as greedy:
            # Connected before, they must still be served when no further connection is let in.
            durable = [stage.connect(late, 5) for _ in range(4)]
            for _ in range(60):
                stage.connect(greedy)
            time.sleep(0.3)
            for _ in range(5):
                for index, one in enumerate(durable):
                    one.send(PRODUCE, 9, produce_request("spare", ONE, index))
                time.sleep(0.5)  # longer, all in all, than what the broker does by itself lets wait
            greedy.close()
            took_s = until_durable_again(stage.broker, "spare", 4)
            if took_s > 2:
                stage.row.faults.append(f"acks=all works again only after {took_s:.1f} s, bound 2")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))


def until_durable_again(broker: Broker, topic: str, partitions: int, patience_s: float = 8) -> float:
    """Return how long it took until acks=all worked on each partition; more than `patience_s` if it never did."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < patience_s:
        try:
            with RawClient(broker, 2) as client:
                if not any(client.produce(topic, ONE, index).error_code for index in range(partitions)):
                    break
        except OSError:
            pass
        time.sleep(0.05)
    return time.monotonic() - began_s


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@scenario(is_on_small_disk=True, overrides=(("num.partitions", "8"),))
def full_disk_while_a_topic_is_created(stage: Stage) -> None:
    """A disk without a page to spare, or with a few; then space comes back."""
    ballast = stage.broker.data_dir / "ballast"
    with stage.watched(may_be_refused=True):
        for pages in range(20):
            made, named = f"made-{pages}", f"named-{pages}"
            fill_disk(ballast, pages)
            story = [f"on a full disk {creation(stage, made)} and {naming(stage, named)}"]
            ballast.unlink()
            began_s = time.monotonic()
            while time.monotonic() - began_s < 2:
                codes = creation(stage, made), naming(stage, named)
                wrote = [production(stage, topic) for topic in (made, named)]
                if codes[0] in (0, TOPIC_ALREADY_EXISTS) and codes[1] == 0 and not any(wrote):
                    break
                story.append(f"{codes} and produced with {wrote}")
                time.sleep(0.2)
            else:
                stage.row.faults.append(
                    f"with {pages} pages left: {', then '.join(dict.fromkeys(story))}"[:300]
                )


TOPIC_ALREADY_EXISTS, CLOSED = 36, -100


def code_of(stage: Stage, ask: Callable[[RawClient], int]) -> int:
    """Ask on a connection of its own; return the code, or CLOSED where there was no answer."""
    try:
        with RawClient(stage.broker, 5) as client:
            return ask(client)
    except OSError:
        return CLOSED


def creation(stage: Stage, topic: str) -> int:
    return code_of(stage, lambda client: client.create(topic, 8).error_code)


def naming(stage: Stage, topic: str) -> int:
    return code_of(stage, lambda client: client.metadata(topic).topics[0].error_code)


def production(stage: Stage, topic: str) -> int:
    return code_of(stage, lambda client: client.produce(topic, ONE).error_code)


def fill_disk(ballast: Path, pages_left: int) -> None:
    """Write until nothing fits, and give so many pages back."""
    system = os.statvfs(ballast.parent)
    assert system.f_blocks * system.f_frsize <= SMALL_DISK_BYTES, "this is not the small disk"
    with ballast.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError:
            pass
        out.truncate(max(ballast.stat().st_size - 4096 * pages_left, 0))
