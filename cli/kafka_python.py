"""What kafka-python 3.0.12 does otherwise than the command needs, mended in the objects of a session.

Owns these mends, and what they know of the inside of the library. Refuses to know what a session is for.
"""

from typing import Any, Final

_CORRUPT_MESSAGE: Final = 2


def make_no_topics(manager: Any) -> None:
    """Have a reader's questions about a topic not create it.

    kafka-python 3.0.12 takes `allow_auto_create_topics`, and does not hand it to what asks the questions.
    """
    manager.cluster.config["allow_auto_create_topics"] = False


def hear_of_damage(fetcher: Any) -> None:
    """Keep which partitions the broker says are damaged, and go on with the others.

    kafka-python 3.0.12 raises that error without a word of the partition.
    """
    parse = fetcher._parse_fetched_data
    fetcher.damaged = {}

    def hear(fetch: Any) -> Any:
        if fetch.partition_data.error_code != _CORRUPT_MESSAGE:
            return parse(fetch)
        fetcher.damaged[fetch.topic_partition] = fetch.fetched_offset
        return None

    fetcher._parse_fetched_data = hear


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
