"""What the examples of the documents find when they are run: a folder, a broker, and the topics that they name.

Owns: how each of these is made, and which addresses and folders stand for those of a page. Refuses to know: what an
example prints.
"""

import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer

from bench.kafka import free_port
from tests.support.broker import Broker
from tests.support.command import ok, rows, tidelog
from tests.support.examples import Example, run

ADDRESS = "127.0.0.1:9092"
# Commands with these words show everything that a broker has: it is new.
SHOWING_ALL = (
    "/health",
    "backup",
    "configs alter",
    "log-dirs",
    "tidelog fsck",
    "tidelog health",
    "tidelog import",
    "tidelog top ",
    "topics list",
)
# They change a broker or its clock, so that the next example needs a new one.
CHANGING = ("configs alter", "nc -U", "sleep", "test-control")
NC = """#!{python}
import socket, sys
with socket.socket(socket.AF_UNIX) as to:
    to.connect(sys.argv[-1])
    to.sendall(sys.stdin.buffer.read())
    to.shutdown(socket.SHUT_WR)
    while answer := to.recv(65536):
        sys.stdout.buffer.write(answer)
"""


class Stage:
    """A folder with a broker on `data`, and the topics of the example that is run next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._root = folder
        self._beginnings = 0
        self._is_used_up = True
        self._broker: Broker | None = None
        self._ends = ExitStack()
        self.texts: dict[str, str] = {}  # of a page, and what stands for them here
        self._texts_of_all: dict[str, str] = {}

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, "begin first"
        return self._broker

    @property
    def environ(self) -> dict[str, str]:
        return {"TIDELOG_BOOTSTRAP": self.broker.address}

    def begin(self) -> None:
        """Start over, with a new folder and a new broker."""
        self._ends.close()
        self._is_used_up = False
        self._beginnings += 1
        self.folder = self._root / str(self._beginnings)
        (self.folder / "bin").mkdir(parents=True)
        netcat = self.folder / "bin" / "nc"  # OpenBSD's, which few machines have
        netcat.write_text(NC.format(python=sys.executable))
        netcat.chmod(0o755)
        port = str(free_port())
        broker = Broker(self.folder / "data", {"http.port": port}, ["--test-control"])
        self._broker = self._ends.enter_context(broker).start(timeout_s=60)
        self._texts_of_all = {
            "127.0.0.1:9464": f"127.0.0.1:{port}",
            "19464": port,
            ADDRESS: broker.address,
            "/mnt/backups": str(self.folder / "backups"),
            "/kafka/data": str(self.folder / "kafka"),
            "/var/lib/tidelog": str(self.folder / "data"),
            ".venv/bin/": "",
            "curl ": "curl --silent ",
            "sleep 30": "tidelog test-control advance 30s --data-dir data >advanced",
        }
        self.texts = dict(self._texts_of_all)

    def other(self) -> Broker:
        """Start another cluster, which pages call kafka:9092."""
        broker = self._ends.enter_context(Broker(self.folder / "kafka-data")).start(timeout_s=60)
        self.texts["kafka:9092"] = broker.address
        return broker

    def has(self, consumer: KafkaConsumer) -> None:
        """Let a member of a group stay until the example has run."""
        self._ends.callback(consumer.close)
        self._is_used_up = True

    def set_for(self, example: Example) -> None:
        """Have the topics and groups that an example names, and no others."""
        words = " ".join(command for command, _ in example.commands)
        if self._is_used_up or not self.broker.is_running or any(word in words for word in SHOWING_ALL):
            self.begin()
        self._is_used_up = any(word in words for word in CHANGING)
        self.texts = dict(self._texts_of_all)
        for row in rows(tidelog(self.broker, "topics", "list", "--json")):
            if not row["topic"].startswith("__"):
                ok(tidelog(self.broker, "topics", "delete", row["topic"], "--yes"))
        tidelog(self.broker, "groups", "delete", "*", "--yes")  # those that did not go with their topics
        if (make := OF_ITS_OWN.get(example.first)) is not None:
            make(self)
            return
        for name, make_topic in TOPICS.items():
            if re.search(rf"\b({name})\b", example.text):
                make_topic(self.broker)

    def run(self, example: Example) -> list[tuple[str, str, int, str]]:
        """Return each command of an example, what its page shows, the exit code, and what it printed."""
        commands = [(self._here(command), self._here(shown)) for command, shown in example.commands]
        ran = run([command for command, _ in commands], self.folder, self.environ)
        return [(*command, *done) for command, done in zip(commands, ran, strict=True)]

    def _here(self, text: str) -> str:
        for shown, real in self.texts.items():
            text = re.sub(rf"(?<!PLAINTEXT://){re.escape(shown)}", lambda _, real=real: real, text)
        return text


# -- topics, by the names that pages give them -----------------------------------------------------------------------


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tides(broker: Broker, *, at_ms: int | None = None, partitions: int = 2) -> None:
    """Three records of two keys, in two batches."""
    ok(
        tidelog(
            broker, "topics", "create", "tides", "--partitions", partitions, "--config", "retention.ms=1d"
        )
    )
    at_ms = now_ms() - 60_000 if at_ms is None else at_ms
    with closing(KafkaProducer(bootstrap_servers=broker.address, linger_ms=60_000)) as to:
        to.send("tides", b"3.2 m", b"harbour", timestamp_ms=at_ms)
        to.flush()
        to.send("tides", b"2.9 m", b"pier", timestamp_ms=at_ms + 21)
        to.send("tides", b"3.3 m", b"harbour", timestamp_ms=at_ms + 21)
        to.flush()


def prices(broker: Broker) -> None:
    """Seven records of four keys, each in a batch of its own."""
    ok(tidelog(broker, "topics", "create", "prices", "--config", "cleanup.policy=compact"))
    at_ms = now_ms() - 60_000
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as to:
        for number, key in enumerate((b"NOK", b"CHF", b"USD", b"EUR", b"CHF", b"EUR", b"USD")):
            to.send("prices", b"1.0%d" % number, key, timestamp_ms=at_ms + number * 837).get(60)


def shop(broker: Broker) -> None:
    """A group that has read four of the prices."""
    done = tidelog(broker, "groups", "reset", "shop", "--topic", "prices", "--to-offset", "4", "--yes")
    assert done.returncode == 0, done.stderr  # which says that the group is new


def orders(broker: Broker) -> None:
    """Two partitions of records out of order, from 2025-10-09 08:53:20 UTC on."""
    ok(tidelog(broker, "topics", "create", "orders", "--partitions", 2, "--config", "retention.ms=-1"))
    with closing(KafkaProducer(bootstrap_servers=broker.address, linger_ms=5)) as to:
        for number in range(600):
            at_ms = 1_760_000_000_000 + number * 300 - number % 7 * 500
            to.send("orders", b"%d" % number, partition=number % 2, timestamp_ms=at_ms)
        to.flush()


# By the words of an example that ask for them.
TOPICS: dict[str, Callable[[Broker], None]] = {
    "tides": tides,
    "prices|shop": prices,
    "shop": shop,
    "orders": orders,
}


# -- examples that need something of their own, by their first lines --------------------------------------------------


def nothing(_: Stage) -> None:
    """Leave it to the example to create its topics."""


def another_cluster(stage: Stage) -> None:
    source = stage.other()
    for make in (tides, prices, shop):
        make(source)


def a_member(stage: Stage) -> None:
    prices(stage.broker)
    shop(stage.broker)
    how = {"bootstrap_servers": stage.broker.address, "group_id": "shop", "enable_auto_commit": False}
    stage.has(consumer := KafkaConsumer(**how))
    consumer.subscribe(["prices"])
    consumer.partitions_for_topic("prices")  # see "Known traps of clients" in docs/operations.md
    while not consumer.assignment():
        consumer.poll(timeout_ms=1000)


def tides_of_two_days_ago(stage: Stage) -> None:
    tides(stage.broker, at_ms=now_ms() - 48 * 3_600_000)


def tides_and_prices(stage: Stage) -> None:
    tides(stage.broker)
    prices(stage.broker)


def tides_of_one_partition(stage: Stage) -> None:
    tides(stage.broker, partitions=1)


def changed_and_stopped(stage: Stage) -> None:
    ok(tidelog(stage.broker, "configs", "alter", "--broker", "1", "--config", "max.connections=500"))
    stage.broker.stop()


def stopped(stage: Stage) -> None:
    stage.broker.stop()


def compacted(stage: Stage) -> None:
    """A few keys that change often, in small segments, after a pass."""
    options = ("--config", "cleanup.policy=compact", "--config", "segment.bytes=20000")
    ok(tidelog(stage.broker, "topics", "create", "prices", *options))
    control = ("--data-dir", stage.broker.data_dir)
    ok(tidelog(stage.broker, "test-control", "hold", *control))
    with closing(KafkaProducer(bootstrap_servers=stage.broker.address, linger_ms=5)) as to:
        for number in range(2000):
            to.send("prices", b"%d" % number, b"key-%d" % (number % 50))
        to.flush()
    ok(tidelog(stage.broker, "test-control", "advance", "1h", *control))
    ok(tidelog(stage.broker, "test-control", "release", *control))


def before_and_after_nine(stage: Stage) -> None:
    tides(stage.broker)
    nine = now_ms() + 1
    while now_ms() <= nine:
        pass
    with closing(KafkaProducer(bootstrap_servers=stage.broker.address)) as to:
        to.send("tides", b"3.4 m", b"harbour").get(60)
    stage.texts["09:00"] = f"@{nine}"


def a_backup(stage: Stage) -> None:
    tides_and_prices(stage)
    ((status, printed),) = run(["tidelog backup --to backup"], stage.folder, stage.environ)
    assert status == 0, printed


def a_backup_elsewhere(stage: Stage) -> None:
    tides_and_prices(stage)
    stage.texts["/var/lib/tidelog"] = str(stage.folder / "restored")


def a_partition_of_kafka(stage: Stage) -> None:
    tides(stage.broker)
    stage.broker.stop()
    shutil.copytree(stage.folder / "data" / "tides-1", stage.folder / "kafka" / "orders-1")
    shutil.rmtree(stage.folder / "data")


OF_ITS_OWN: dict[str, Callable[[Stage], None]] = {
    "$ tidelog topics create tides --partitions 2 --config retention.ms=1d": nothing,
    "$ tidelog topics create prices --config cleanup.policy=compact --config max.compaction.lag.ms=1000": nothing,
    "$ tidelog copy --from kafka:9092 --topics 'tides|prices'": another_cluster,
    "$ tidelog groups list": a_member,
    "$ tidelog groups describe shop": a_member,
    '$ tidelog delete-records tides --before "yesterday 09:00" --yes': tides_of_two_days_ago,
    "$ tidelog configs alter --data-dir data --broker 1 --delete-config max.connections": changed_and_stopped,
    "$ tidelog explain compaction prices --data-dir data": compacted,
    "$ tidelog fork tides --at 09:00 tides-at-nine": before_and_after_nine,
    "$ tidelog backup --to /mnt/backups/monday": a_backup_elsewhere,
    "$ tidelog restore --from backup --data-dir new": a_backup,
    "$ tidelog import /kafka/data/orders-1 --topic orders --data-dir data --config retention.ms=-1": (
        a_partition_of_kafka
    ),
    "$ curl http://127.0.0.1:9464/health": tides_of_one_partition,
    "$ tidelog fsck data": tides_and_prices,
    "$ tidelog health --http 127.0.0.1:9464": tides_and_prices,
    "tidelog serve --port 0 --data-dir data --test-control --stop-at-eof": stopped,
}
