"""What kafka-python 3.0.12 does otherwise than the command needs, mended in the objects of a session.

Owns these mends, and what they know of the inside of the library. Refuses to know what a session is for.
"""

from collections.abc import Callable
from typing import Any, Final

_CORRUPT_MESSAGE: Final = 2
KAFKA_STORAGE_ERROR: Final = 56

Partition = tuple[str, int]


def make_no_topics(manager: Any) -> None:
    """Have a reader's questions about a topic not create it.

    kafka-python 3.0.12 takes `allow_auto_create_topics`, and does not hand it to what asks the questions.
    """
    manager.cluster.config["allow_auto_create_topics"] = False


def hear_of_damage(fetcher: Any) -> None:
    """Keep which partitions the broker says are damaged or that it cannot read now, and go on with the others.

    kafka-python 3.0.12 raises the first error without a word of the partition, and never tells of the second.
    """
    parse = fetcher._parse_fetched_data
    fetcher.damaged = {}
    fetcher.refused = set()

    def hear(fetch: Any) -> Any:
        code = fetch.partition_data.error_code
        if code == _CORRUPT_MESSAGE:
            fetcher.damaged[fetch.topic_partition] = fetch.fetched_offset
            return None
        if code == KAFKA_STORAGE_ERROR:
            fetcher.refused.add(fetch.topic_partition)
        else:
            fetcher.refused.discard(fetch.topic_partition)
        return parse(fetch)

    fetcher._parse_fetched_data = hear


def hear_refused_lookups(session: Any, method: str, refuse: Callable[[list[Partition]], Exception]) -> None:
    """Raise what `refuse` makes of the partitions whose logs the broker cannot use, as ListOffsets answers it.

    `method` takes that answer. kafka-python 3.0.12 names no partition in its error; its consumer raises none, but asks
    again without a pause until `request_timeout_ms` is over.
    """
    handle = getattr(session, method)

    def hear(answer: Any) -> Any:
        refused = [
            (topic.name, each.partition_index)
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code == KAFKA_STORAGE_ERROR
        ]
        if refused:
            raise refuse(sorted(refused))
        return handle(answer)

    setattr(session, method, hear)


def let_resumed_on(fetcher: Any) -> None:
    """Have a poll return the records that came while their partition was paused.

    kafka-python 3.0.12 keeps them aside, and does not fetch the partition meanwhile. It returns to them only while
    no other partition's records are in hand (`None`); records that were all read are false, but not None.
    """
    fetched_records = fetcher.fetched_records

    def fetched(*given: Any, **named: Any) -> Any:
        if not fetcher._next_partition_records:
            fetcher._next_partition_records = None
        return fetched_records(*given, **named)

    fetcher.fetched_records = fetched


def hear_refusals(cluster: Any) -> None:
    """Keep what the broker says against a producer's topics.

    kafka-python 3.0.12 logs it, asks again until `max_block_ms` is over, and then says that it took too long.
    """
    update = cluster.update_metadata
    cluster.refusals = {}

    def hear(answer: Any) -> None:
        cluster.refusals = {topic.name: topic.error_code for topic in answer.topics if topic.error_code}
        update(answer)

    cluster.update_metadata = hear


def hear_refused_batches(sender: Any) -> None:
    """Keep what the broker last said against a batch, for as long as it takes none.

    kafka-python 3.0.12 logs it and sends the batch again until `delivery_timeout_ms` is over, and then says only that.
    """
    complete = sender._complete_batch
    sender.refusal = None

    def hear(batch: Any, answer: Any) -> None:
        sender.refusal = answer if answer.error_code else None
        complete(batch, answer)

    sender._complete_batch = hear
