"""A client of the brokers that a source or a target names. Its errors become PipelineError."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelog.client import address
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, Unreachable
from tidelog.pipeline.errors import PipelineError, WrongOption

CLIENT_ID: Final = "tidelog-pipeline"


@contextmanager
def connected(place: str) -> Iterator[Cluster]:
    """Yield a client of the cluster at HOST:PORT[,HOST:PORT...]; WrongOption, PipelineError."""
    with Cluster(addresses(place), CLIENT_ID) as cluster:
        try:
            yield cluster
        except Unreachable as error:
            raise PipelineError(f"no broker answers at {place} ({error}); is it running?") from error
        except ClientError as error:
            raise PipelineError(str(error)) from error


def addresses(place: str) -> list[tuple[str, int]]:
    """Parse HOST:PORT[,HOST:PORT...]; WrongOption."""
    try:
        return [_address(each.strip()) for each in place.split(",")]
    except ValueError as error:
        raise WrongOption(
            f"broker:{place} names no HOST:PORT, such as broker:localhost:9092: {error}"
        ) from None


def _address(text: str) -> tuple[str, int]:
    if ":" not in text:
        raise ValueError("the port is missing")
    return address.parse(text)
