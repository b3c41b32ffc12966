"""A partition as requests see it: its log, and the fetches that wait for it to grow."""

from typing import Final

from tidelog.broker.waiting import Waiters
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage.log import Appended, Checked, Log

ACKS_ALL: Final = -1


class Partition:
    """A log, and the fetches that wait for it to grow."""

    __slots__ = ("index", "log", "waiters")

    def __init__(self, index: int, log: Log) -> None:
        self.index = index
        self.log = log
        self.waiters = Waiters()

    def append(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        checked: Checked | None = None,
        any_format: bool = False,
    ) -> Appended:
        """Append one produced batch, and wake the fetches that it completes. As `Log.append`."""
        appended = self.log.append(data, now_ms, checked, any_format)
        if self.waiters.count and not appended.duplicate:
            self.waiters.grow(self.log.last_batch_bytes)
        return appended

    def awaits_disk(self, acks: int) -> bool:
        """Tell whether the last append is answered only once it is on disk (`flush.policy`)."""
        log = self.log
        policy = log.config.flush_policy
        if policy == "acks":
            return acks == ACKS_ALL
        if policy == "interval":
            return log.log_end_offset - log.durability.recovery_point >= log.config.flush_messages
        return False

    def epoch_problem(self, leader_epoch: int) -> ErrorCode:
        """Compare a client's leader epoch (-1 for none) with ours; NONE if they agree."""
        if leader_epoch < 0 or leader_epoch == self.log.leader_epoch:
            return ErrorCode.NONE
        if leader_epoch < self.log.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def raise_leader_epoch(self) -> int:
        """Begin a new leader epoch, as a new leader would; return it. Maintenance thread only."""
        log = self.log
        with log.lock:
            log.leader_epoch += 1
            log.epochs.begin(log.leader_epoch, log.log_end_offset)
            log.epochs.save(durably=True)
            return log.leader_epoch

    def release(self) -> None:
        """Answer all waiting fetches with what there is: the partition is going away."""
        self.waiters.release()
