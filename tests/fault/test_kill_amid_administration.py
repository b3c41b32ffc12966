"""kill -9 amid administration: what was answered is so afterwards, and nothing is half made.

One client changes topics, produces and commits in a loop; the broker is killed at any moment, at times as it starts.
"""

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import Broker
from tests.support.builders import produce_request
from tests.support.raw_client import METADATA, PRODUCE, RawClient
from tests.support.workload import one_batch
from tidelog.protocol.messages.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from tidelog.protocol.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROUNDS = 12
WAIT_MS = 20_000
TOPIC_KIND, SET = 2, 0


class Admin(threading.Thread):
    """Changes topics, and keeps for each what was asked for last and what was answered."""

    def __init__(self, broker: Broker, seed: str, known: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._broker, self._rng = broker, random.Random(seed)
        self.known = known  # of each value: what was answered, then what was asked for
        self.fault: Exception | None = None
        self.has_begun = threading.Event()

    def run(self) -> None:
        try:
            with RawClient(self._broker) as client:
                while True:
                    self._rng.choice((self.grow, self.cut, self.alter, self.delete, self.commit))(client)
                    self.has_begun.set()
        except OSError:
            pass  # killed
        except Exception as error:
            self.fault = error
        self.has_begun.set()

    def _change(self, what: str, wanted: Any, code: int) -> None:
        assert code == 0, (what, wanted, code)
        self.known[what] = (wanted,)

    def _ask(self, what: str, wanted: Any) -> None:
        self.known[what] = (*self.known[what], wanted)

    def grow(self, client: RawClient) -> None:
        wanted = self.known["partitions"][-1] + 1
        if wanted > 40:
            return
        self._ask("partitions", wanted)
        named = [CreatePartitionsTopic(name="t", count=wanted, assignments=None)]
        request = CreatePartitionsRequest(topics=named, timeout_ms=WAIT_MS, validate_only=False)
        answer = client.ask(CREATE_PARTITIONS.key, 3, request)
        self._change("partitions", wanted, answer.results[0].error_code)

    def cut(self, client: RawClient) -> None:
        wanted = self.known["start"][-1] + 1
        answered = client.ask(PRODUCE, 9, produce_request("t", one_batch(1)))
        assert answered.responses[0].partition_responses[0].error_code == 0
        self.known["end"] = (self.known["end"][-1] + 1,)
        self._ask("start", wanted)
        parts = [DeleteRecordsPartition(partition_index=0, offset=wanted)]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=parts)], timeout_ms=WAIT_MS
        )
        answer = client.ask(DELETE_RECORDS.key, 2, request)
        self._change("start", wanted, answer.topics[0].partitions[0].error_code)

    def alter(self, client: RawClient) -> None:
        wanted = str(self._rng.randrange(1_000_000, 9_000_000))
        self._ask("segment.bytes", wanted)
        options = [AlterableConfig(name="segment.bytes", config_operation=SET, value=wanted)]
        resource = AlterConfigsResource(resource_type=TOPIC_KIND, resource_name="t", configs=options)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = client.ask(INCREMENTAL_ALTER_CONFIGS.key, 1, request)
        self._change("segment.bytes", wanted, answer.responses[0].error_code)

    def delete(self, client: RawClient) -> None:
        """Make a topic of two partitions, or delete it."""
        is_there = self.known["other"][-1]
        self._ask("other", not is_there)
        if is_there:
            request = DeleteTopicsRequest(topic_names=["other"], timeout_ms=WAIT_MS)
            code = client.ask(DELETE_TOPICS.key, 5, request).responses[0].error_code
        else:
            code = client.create("other", 2).error_code
        self._change("other", not is_there, code)

    def commit(self, client: RawClient) -> None:
        wanted = self.known["committed"][-1] + 1
        self._ask("committed", wanted)
        parts = [
            OffsetCommitRequestPartition(partition_index=0, committed_offset=wanted, committed_metadata="")
        ]
        request = OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=parts)]
        )
        answer = client.ask(OFFSET_COMMIT.key, 8, request)
        self._change("committed", wanted, answer.topics[0].partitions[0].error_code)


def found(client: RawClient) -> dict[str, Any]:
    """Return what a broker says is so."""
    topics = {each.name: each for each in client.ask(METADATA, 12, MetadataRequest(topics=None)).topics}
    for topic in topics.values():
        assert [each.error_code for each in topic.partitions] == [0] * len(topic.partitions)
    named = [DescribeConfigsResource(resource_type=TOPIC_KIND, resource_name="t", configuration_keys=None)]
    described = client.ask(DESCRIBE_CONFIGS.key, 4, DescribeConfigsRequest(resources=named))
    options = {each.name: each.value for each in described.results[0].configs}
    asked = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    groups = [OffsetFetchRequestGroup(group_id="g", topics=[asked])]
    while True:
        answer = client.ask(OFFSET_FETCH.key, 8, OffsetFetchRequest(groups=groups)).groups[0]
        if not answer.error_code:
            break
        time.sleep(0.01)  # it reads its groups
    if "other" in topics:
        assert len(topics["other"].partitions) == 2
    return {
        "partitions": len(topics["t"].partitions),
        "segment.bytes": options["segment.bytes"],
        "start": client.list_offsets("t", -2, 0).offset,
        "end": client.list_offsets("t", -1, 0).offset,
        "other": "other" in topics,
        "committed": answer.topics[0].partitions[0].committed_offset,
    }


def test_what_was_changed_survives_kill_nine_and_nothing_is_half_made(tmp_path: Path) -> None:
    rng = random.Random("administration")
    with Broker(tmp_path / "data", {"log.retention.ms": "-1"}) as broker:
        broker.start()
        with RawClient(broker) as client:
            assert client.create("t", 1).error_code == 0
            known: dict[str, Any] = {name: (value,) for name, value in found(client).items()}
        for number in range(ROUNDS):
            admin = Admin(broker, f"{number}", known)
            admin.start()
            assert admin.has_begun.wait(20)
            time.sleep(rng.uniform(0, 0.2))
            broker.kill()
            admin.join(20)
            assert admin.fault is None, admin.fault
            if rng.random() < 0.3:
                broker.spawn()
                time.sleep(rng.uniform(0, 0.4))
                broker.kill()
            broker.start()
            with RawClient(broker) as client:
                now = found(client)
                for name, value in now.items():
                    # A record that was sent and not answered may be there.
                    may_be = {*known[name], known[name][-1] + 1} if name == "end" else {*known[name]}
                    assert value in may_be, f"{name} is {value}, of {known[name]} the first was answered"
                assert client.produce("t", one_batch(1)).error_code == 0
                now["end"] += 1
            known = {name: (value,) for name, value in now.items()}
        with suppress(OSError):
            broker.stop()
        folders = {path.name for path in broker.data_dir.iterdir() if path.is_dir()}
        expected = {f"t-{index}" for index in range(known["partitions"][0])}
        assert {name for name in folders if name.startswith("t-")} == expected
        assert not [path for path in broker.data_dir.rglob("*") if path.suffix == ".tmp"]
