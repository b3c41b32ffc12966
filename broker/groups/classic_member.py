"""A member of a classic group, and functions over the protocols of all members. The group itself is in `classic`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tidelog.broker.groups.memory import text_bytes
from tidelog.broker.groups.services import Reply, SessionTimer
from tidelog.protocol.coordinator.consumer_protocol import CONSUMER, subscribed_topics
from tidelog.protocol.coordinator.messages import MemberMetadata
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse

# The approximate memory of a member without its metadata, and of a protocol without its name and metadata.
MEMBER_BYTES: Final = 1200
PROTOCOL_BYTES: Final = 150
# The metadata and assignments of all members are stored as one record, which has to fit into a batch of 1 MiB.
METADATA_BYTES_MAX: Final = 768 << 10

Protocols = Sequence[tuple[str, bytes]]  # name and metadata, most preferred first


class Joining(NamedTuple):
    """A request to join."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_its_id: bool = False  # gets a member id first, and joins again with it (KIP-394)
    may_skip_assignment: bool = False  # understands skip_assignment in the answer (KIP-814)


class ClassicMember:
    """A member, and the replies it waits for."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "join",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync",
    )

    def __init__(self, member_id: str, request: Joining) -> None:
        self.id = member_id
        self.instance_id = request.instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        self.protocols = request.protocols
        self.assignment = b""
        self.is_new = False
        self.join: Reply | None = None
        self.sync: Reply | None = None
        self.session: SessionTimer | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def answer_sync(self, response: SyncGroupResponse) -> None:
        """Answer the waiting sync, if there is one."""
        if self.sync is not None:
            reply, self.sync = self.sync, None
            reply.deliver(response)

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the member."""
        return self.metadata_bytes + len(self.assignment)

    @property
    def metadata_bytes(self) -> int:
        """`size_bytes` without the assignment."""
        names = (self.id, self.id, self.client_id, self.instance_id or "")
        return MEMBER_BYTES + sum(map(text_bytes, names)) + protocols_bytes(self.protocols)

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """Return the member in its stored form."""
        return MemberMetadata(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


def restored(stored: MemberMetadata, protocol_type: str, protocol: str | None) -> ClassicMember:
    """Return a member from its stored form."""
    request = Joining(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.rebalance_timeout or stored.session_timeout,
        stored.session_timeout,
        protocol_type,
        [(protocol or "", stored.subscription)],
    )
    member = ClassicMember(stored.member_id, request)
    member.assignment = stored.assignment
    return member


def protocols_bytes(protocols: Protocols) -> int:
    """Return the approximate memory of protocols and their metadata."""
    return sum(PROTOCOL_BYTES + text_bytes(name) + len(metadata) for name, metadata in protocols)


class HasProtocols(Protocol):
    """A classic member in either kind of group."""

    @property
    def protocols(self) -> Protocols:
        """The supported protocols, most preferred first."""


def chosen_protocol(members: Iterable[HasProtocols], supported: Mapping[str, int]) -> str:
    """Return the protocol with the most votes. Each member votes for the first of its protocols that all support."""
    all_members = list(members)
    common = {name for name, count in supported.items() if count == len(all_members)}
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in all_members)
    return votes.most_common(1)[0][0]


def longest_metadata(protocols: Protocols) -> int:
    """Return the size of the longest metadata, the most that a member may have in the stored group."""
    return max((len(metadata) for _, metadata in protocols), default=0)


def topics_read(
    protocol_type: str | None, protocol: str | None, members: Iterable[ClassicMember]
) -> frozenset[str] | None:
    """Return the topics that members subscribe to; None if the metadata of one is not a consumer's subscription."""
    if protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for metadata in {member.metadata(protocol) for member in members}:  # mostly the same
        names = subscribed_topics(metadata)
        if names is None:
            return None
        topics.update(names)
    return frozenset(topics)


def refused_join(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """Return the response that refuses a join."""
    return JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_name=None, leader="", member_id=member_id, members=[]
    )


def refused_sync(code: ErrorCode) -> SyncGroupResponse:
    """Return the response that refuses a sync."""
    return SyncGroupResponse(error_code=code, assignment=b"")
