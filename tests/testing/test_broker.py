"""`Broker` as a test uses it: its start and end, its topics, what is in its logs, snapshots, its death."""

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.tested import batch_at, raw, values
from tests.support.workload import CODECS
from tidelog.cli.control_client import ControlClient
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.message_set import build_message_set
from tidelog.testing import Broker, BrokerDied, BrokerError, ControlError
from tidelog.testing import broker as broker_module
from tidelog.testing.own_folder import OwnFolder

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_a_topic_has_a_name_of_its_own_and_the_options_that_were_asked_for(broker: Broker) -> None:
    one, other = broker.topic(), broker.topic(partitions=3, **{"cleanup.policy": "compact"})
    assert one.name != other.name
    assert (one.partitions, other.partitions) == (1, 3)
    assert one.bootstrap == broker.bootstrap == f"127.0.0.1:{broker.port}"
    with raw(broker) as client:
        assert {len(topic.partitions) for topic in client.metadata(one.name, other.name).topics} == {1, 3}
    one.delete()
    with raw(broker) as client:
        assert client.metadata(one.name, create=False).topics[0].error_code != 0


def test_what_cannot_be_made_is_refused_in_the_brokers_words(broker: Broker) -> None:
    with pytest.raises(ControlError, match=r"retention\.msec"):
        broker.topic(**{"retention.msec": 5})
    with pytest.raises(ControlError, match="INVALID_TOPIC_EXCEPTION"):
        broker.topic("a/b")
    with pytest.raises(ControlError, match="no partition 1 of a topic"):
        broker.records(broker.topic(), 1)


@pytest.mark.parametrize("codec", range(len(CODECS)), ids=CODECS)
def test_records_are_read_from_the_files_whatever_their_codec(broker: Broker, codec: int) -> None:
    topic = broker.topic()
    sent = [
        Record(n, 1_700_000_000_000 + n, b"k" if n else None, b"v%d" % n, (("h", b"1"),)) for n in range(3)
    ]
    with raw(broker) as client:
        assert client.produce(topic.name, build_batch(sent, codec=codec)).error_code == 0
        assert client.produce(topic.name, build_batch(sent[:1], codec=codec)).error_code == 0
    assert list(broker.records(topic))[:3] == sent
    assert [record.offset for record in topic.records()] == [0, 1, 2, 3]


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_older_formats_are_read_too(broker: Broker, magic: int) -> None:
    topic = broker.topic(**{"message.format.version": str(magic)})
    sent = [Record(n, 1_700_000_000_000 if magic else -1, b"k", b"v%d" % n) for n in range(3)]
    with raw(broker) as client:
        for codec in (0, 1):
            assert (
                client.produce(
                    topic.name, build_message_set(sent, magic=magic, codec=codec), version=2
                ).error_code
                == 0
            )
    assert values(topic.records()) == [b"v0", b"v1", b"v2"] * 2
    assert [record.offset for record in topic.records()] == list(range(6))


def test_records_begin_where_the_log_does(broker: Broker) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    topic = broker.topic()
    with raw(broker) as client:
        client.produce(topic.name, batch_at(broker.clock.now_ms, 4))
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_records({TopicPartition(topic.name, 0): 3})
    admin.close()
    assert [record.offset for record in topic.records()] == [3]


def test_a_broker_is_restarted_and_killed_on_the_same_port_with_its_clock_where_it_was() -> None:
    with Broker(clock="2026-03-01T09:00Z") as broker:
        topic, port = broker.topic(), broker.port
        with raw(broker) as client:
            client.produce(topic.name, batch_at(broker.clock.now_ms))
        broker.clock.advance(hours=1)
        broker.restart()
        assert (broker.port, broker.clock.now().isoformat()) == (port, "2026-03-01T10:00:00+00:00")
        broker.clock.advance(minutes=30)
        broker.kill()
        assert not broker.is_running
        assert len(topic.records()) == 1
        with pytest.raises(BrokerError, match="was killed: call restart"):
            broker.topic()
        broker.restart()
        assert (broker.port, broker.clock.now().isoformat()) == (port, "2026-03-01T10:30:00+00:00")
        assert len(topic.records()) == 1
        assert broker.log().count("listening") == 3
        folder = broker.data_dir.parent
    assert not folder.exists()


def test_a_snapshot_starts_brokers_that_know_what_the_first_knew_and_nothing_of_one_another(
    tmp_path: Path,
) -> None:
    with Broker(data_dir=tmp_path / "data", config={"log.retention.ms": -1}) as broker:
        topic = broker.topic(partitions=2)
        with raw(broker) as client:
            client.produce(topic.name, batch_at(1_700_000_000_000, 3))
            broker.clock.set(1_700_000_000_000)
        with broker.snapshot() as snapshot:
            sealed = snapshot.folder / f"{topic.name}-0" / f"{0:020d}.log"
            assert sealed.samefile(broker.data_dir / sealed.parent.name / sealed.name)
            with raw(broker) as client:
                assert client.produce(topic.name, batch_at(1_700_000_000_000)).base_offset == 3
            with Broker.from_snapshot(snapshot) as one, Broker.from_snapshot(snapshot) as other:
                assert one.clock.now_ms == broker.clock.now_ms == 1_700_000_000_000
                for each in (one, other):
                    with raw(each) as client:
                        assert client.produce(topic.name, batch_at(1_700_000_000_000, 2)).base_offset == 3
                one.ask("delete_topic", name=topic.name)
                other.kill()
                other.restart()
                assert [len(each.records(topic.name)) for each in (broker, other)] == [4, 5]
            assert len(topic.records()) == 4
        assert not snapshot.folder.exists()
    assert (tmp_path / "data").exists()  # whose folder it is keeps it


def test_a_broker_that_died_says_so_whatever_is_asked_of_it() -> None:
    broker = Broker().start()
    topic = broker.topic()
    os.kill(broker.pid, signal.SIGKILL)
    uses = (broker.topic, topic.records, broker.clock.hold, broker.faults.seen, broker.check, broker.restart)
    for use in uses:
        with pytest.raises(BrokerDied, match=r"the broker has died: signal 9; the end of its log"):
            use()
    broker.stop()  # That it has died was told.


def test_a_start_that_fails_says_why_and_leaves_nothing() -> None:
    broker = Broker(config={"log.retention.mz": 5})
    with pytest.raises(BrokerError, match=r"did not start: exit code 2(?s:.)*log\.retention\.mz"):
        broker.start()
    with pytest.raises(BrokerError, match="has not been started"):
        broker.topic()
    with pytest.raises(BrokerError):
        _ = broker.data_dir


async def test_a_broker_is_started_beside_an_event_loop() -> None:
    async with Broker() as broker:
        assert broker.topic().records() == []


OWNER = """
import sys
from tidelog.testing import Broker
broker = Broker(data_dir=sys.argv[1]).start()
print(broker.pid, flush=True)
sys.stdin.read()
"""


def test_a_broker_ends_with_its_owner_however_that_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "data")]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}  # a folder stays: nobody is left to remove it
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as owner:
        assert owner.stdout is not None
        process = os.pidfd_open(int(owner.stdout.readline()))
        try:
            owner.kill()
            poll = select.poll()
            poll.register(process, select.POLLIN)
            assert poll.poll(60_000)
        finally:
            os.close(process)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


KILLED = """
import os, signal, sys
from tidelog.testing.own_folder import OwnFolder
from pathlib import Path
kept, *_ = folders = [OwnFolder(Path(sys.argv[1])) for _ in range(3)]
kept.keep()
print(kept.path.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_owner_leaves_goes_when_somebody_makes_a_folder_there(tmp_path: Path) -> None:
    """But nothing of one that lives, of a fork of one, or that is to be kept, nor what others call so."""
    mine = OwnFolder(tmp_path)
    (tmp_path / "tidelog-of-another").mkdir()
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    kept = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60).stdout.strip()
    assert len(list(tmp_path.iterdir())) == 5
    other = OwnFolder(tmp_path)
    left = {"tidelog-of-another", kept, mine.path.name, other.path.name}
    assert {path.name for path in tmp_path.iterdir()} == left
    other.remove()
    mine.remove()
    assert {path.name for path in tmp_path.iterdir()} == {"tidelog-of-another", kept}


def test_a_broker_that_is_to_be_kept_is_not_swept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Broker(keep=True) as broker:
        log = broker.log_file
    with Broker():
        assert log.exists()


def test_a_broker_that_nobody_tests_cannot_be_controlled(tmp_path: Path) -> None:
    from tests.support import broker as plain

    with plain.Broker(tmp_path / "data") as broker:
        broker.start()
        assert not (broker.data_dir / ".control").exists()
        broker.stop()


def test_a_folder_whose_path_is_longer_than_a_sockets_may_be_is_controlled_too(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / ("long" * 40) / "data") as broker:
        assert broker.topic().records() == []


def test_data_is_in_memory_only_where_there_is_room_and_nobody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(broker_module, "MEMORY", tmp_path)
    monkeypatch.setattr(broker_module, "ROOM_BYTES", 0)
    assert broker_module._roomy_memory() == tmp_path
    monkeypatch.setattr(broker_module, "ROOM_BYTES", 1 << 62)
    assert broker_module._roomy_memory() is None
    monkeypatch.setattr(broker_module, "ROOM_BYTES", 0)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert broker_module._roomy_memory() is None


def _tell(broker: Broker, told: "multiprocessing.Queue[object]") -> None:
    asked = [broker.clock.now_ms for _ in range(50)]
    try:
        broker.stop()
    except BrokerError as why:
        told.put((broker.bootstrap, broker.is_running, len(asked), str(why)))


def test_a_fork_uses_a_broker_and_does_not_end_it() -> None:
    fork = multiprocessing.get_context("fork")
    with Broker() as broker:
        told: multiprocessing.Queue[object] = fork.Queue()
        process = fork.Process(target=_tell, args=(broker, told))
        process.start()
        asked = [broker.clock.now_ms for _ in range(50)]  # and neither reads the other's answers
        why = f"the broker belongs to process {os.getpid()}: only that process can stop it, not a fork"
        assert told.get(timeout=30) == (broker.bootstrap, True, len(asked), why)
        process.join()
        assert broker.data_dir.exists()
        assert broker.ask("now")


def test_a_fork_does_not_remove_what_its_parent_has() -> None:
    with Broker() as broker, broker.snapshot() as snapshot:
        child = os.fork()
        if not child:
            registry: Any = weakref.finalize._registry  # type: ignore[attr-defined]
            # As the end of the interpreter does, and only for this.
            [mine] = [each for each in list(registry) if (each.peek() or (None,))[0] is snapshot]
            mine()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert snapshot.folder.exists()


def test_a_clock_that_another_process_has_held_is_held_after_a_restart(broker: Broker) -> None:
    control = ControlClient(broker.data_dir)
    control.ask("set", at_ms=1_000)
    control.close()
    broker.restart()
    assert broker.clock.held_ms == broker.clock.now_ms == 1_000
    broker.clock.release()
