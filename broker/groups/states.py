"""The states of a classic group: from which to which it goes, and what it answers in each."""

from enum import Enum, IntEnum, auto
from typing import Final

from tidelog.protocol.error_codes import ErrorCode


class State(Enum):
    """Where a group stands; the value is what clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # members are to join
    COMPLETING_REBALANCE = "CompletingRebalance"  # all have joined, the leader is to assign
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

# From where a group gets to where.
MOVES: Final = {
    EMPTY: {PREPARING, DEAD},
    PREPARING: {COMPLETING, EMPTY, DEAD},
    COMPLETING: {STABLE, PREPARING, DEAD},
    STABLE: {PREPARING, DEAD},
    DEAD: frozenset[State](),
}


class Asked(IntEnum):
    """What is asked of a group."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()
    DELETE = auto()
    DELETE_OFFSETS = auto()  # of a group that is not one of consumers: nobody knows what its members read


_GO_ON, _GONE = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
_UNKNOWN, _REJOIN, _MEMBERS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NON_EMPTY_GROUP,
)
# How a group answers in each state, if who asks is a member of this generation, where that matters; NONE where it does
# what is asked.
ANSWERS: Final[dict[Asked, dict[State, ErrorCode]]] = {
    asked: dict(zip((EMPTY, PREPARING, COMPLETING, STABLE, DEAD), codes, strict=True))
    for asked, codes in {
        # in              EMPTY     PREPARING COMPLETING STABLE   DEAD
        Asked.JOIN: (_UNKNOWN, _GO_ON, _GO_ON, _GO_ON, _GONE),
        Asked.SYNC: (_UNKNOWN, _REJOIN, _GO_ON, _GO_ON, _GONE),
        Asked.HEARTBEAT: (_UNKNOWN, _REJOIN, _GO_ON, _GO_ON, _GONE),
        # While members are to join they may still commit: a heartbeat tells them to join.
        Asked.COMMIT: (_GO_ON, _GO_ON, _REJOIN, _GO_ON, _GONE),
        Asked.DELETE: (_GO_ON, _MEMBERS, _MEMBERS, _MEMBERS, ErrorCode.GROUP_ID_NOT_FOUND),
        Asked.DELETE_OFFSETS: (_GO_ON, _MEMBERS, _MEMBERS, _MEMBERS, ErrorCode.GROUP_ID_NOT_FOUND),
    }.items()
}
