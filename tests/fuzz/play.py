"""Playing cases to a broker, and what must hold while that goes on.

Owns: the broker under fuzz, the sockets that spoil, a ledger of what another client wrote, and the signs of trouble:
an error in the log, an end of the process, memory, a slow answer. Refuses to know: what the cases hold.
"""

import random
import re
import resource
import signal
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.fuzz.frames import Case
from tests.support.broker import Broker
from tests.support.raw_client import METADATA, RawClient
from tests.support.workload import START_MS
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.records.build import Record, build_batch

MIB = 1 << 20
TOPIC, LEDGER = "corpus", "ledger-of-another"
OPTIONS = {"log.retention.ms": "-1", "log.segment.bytes": str(256 * 1024)}
SLOWEST_ANSWER_S = 1.0
# How much more than at its start a broker may hold while connections are spoiled, and once they are gone.
MOST_GROWTH_MB, MOST_LEFT_MB = 700, 100
TOPIC_KB = 30
MOST_ADDRESS_SPACE = 8 << 30
# Connections that stay while others come: half a frame, a fetch that waits.
MOST_STAYING = 60
PATIENCE_S = 10.0


class Trouble(Exception):
    """Something that must not be; the message says what, the same each time that it happens. `log` shows more."""

    def __init__(self, what: str, log: str = "") -> None:
        super().__init__(what)
        self.log = log


class Slow(Trouble):
    """An answer that took too long."""


class Beat(threading.Thread):
    """Asks a question that costs nothing, again and again, and keeps the slowest answer."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.slowest_s = 0.0
        self.fault = ""
        self._broker = broker
        self._enough = threading.Event()

    def run(self) -> None:
        try:
            with RawClient(self._broker, PATIENCE_S) as client:
                while not self._enough.wait(0.01):
                    began_s = time.monotonic()
                    client.api_versions()
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        except (OSError, AssertionError) as error:
            if not self._enough.is_set():
                self.fault = repr(error)

    def end(self) -> None:
        self._enough.set()
        self.join(PATIENCE_S + 5)


class Ledger:
    """What another client had acknowledged: it must be there, at its offset, byte for byte."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def write_and_read(self, broker: Broker, rng: random.Random) -> None:
        """Write some, and read them back with some of the earlier ones."""
        with RawClient(broker, PATIENCE_S) as client:
            values = [rng.randbytes(rng.randrange(1, 200)) for _ in range(rng.randrange(1, 5))]
            data = build_batch([Record(i, START_MS, None, value) for i, value in enumerate(values)])
            answer = client.produce(LEDGER, data)
            if (answer.error_code, answer.base_offset) != (0, len(self.records)):
                raise Trouble(f"a produce got error {answer.error_code} and offset {answer.base_offset}")
            self.records += [data] * len(values)
            self.read(client, rng.randrange(len(self.records)))

    def read(self, client: RawClient, offset: int) -> None:
        """Read from an offset to the end."""
        due = offset
        while self.records[due - 1] is self.records[offset] and due:
            due -= 1  # the whole batch comes
        for base_offset, data in client.batches(LEDGER, offset=offset):
            if base_offset != due or data[21:] != self.records[due][21:]:
                raise Trouble(f"another's records changed: at {base_offset}, where {due} is due")
            while due < len(self.records) and self.records[due] is self.records[base_offset]:
                due += 1
        if due != len(self.records):
            raise Trouble(f"another's records end at {due}, acknowledged were {len(self.records)}")


class Stand:
    """A broker with the topic of the corpus and the ledger of another client, from start to stop."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(folder / "data", OPTIONS)
        self.ledger = Ledger()
        self.topic_id = b""
        self._staying: deque[socket.socket] = deque()
        self._read_to = 0

    def __enter__(self) -> Self:
        self.start()
        with RawClient(self.broker) as client:
            self.topic_id = client.create(TOPIC, 2).topic_id
            client.create(LEDGER)
            for number in range(20):
                client.produce(
                    TOPIC, build_batch([Record(0, START_MS + number, b"k", b"v" * 500)]), number % 2
                )
        return self

    def __exit__(self, *_: object) -> None:
        self.beat.end()
        self._leave()
        self.broker.kill()

    def start(self) -> None:
        self.broker.start()
        resource.prlimit(self.broker.pid, resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, MOST_ADDRESS_SPACE))
        self._read_to = 0
        self.before_mb = self.broker.rss_bytes / MIB
        self.beat = Beat(self.broker)
        self.beat.start()

    # -- playing -----------------------------------------------------------------------------------------------------

    def play(self, case: Case) -> None:
        """Send what a case holds, and end the connection as it says."""
        with suppress(OSError):
            sock = socket.create_connection((self.broker.host, self.broker.port), timeout=1)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for packet in case.packets():
                    sock.sendall(packet)
                if case.end == "half":
                    sock.shutdown(socket.SHUT_WR)
                    sock.settimeout(0.05)
                    while sock.recv(1 << 16):
                        pass
                elif case.end == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            finally:
                if case.end == "stay":
                    self._staying.append(sock)
                    if len(self._staying) > MOST_STAYING:
                        self._staying.popleft().close()
                else:
                    sock.close()

    def _leave(self) -> None:
        while self._staying:
            self._staying.pop().close()

    # -- what must hold ----------------------------------------------------------------------------------------------

    def check(self, rng: random.Random) -> None:
        """Raise Trouble if something must not be as it is."""
        self.check_process()
        try:
            self.ledger.write_and_read(self.broker, rng)
        except (OSError, AssertionError) as error:
            self.check_process()
            raise Trouble(f"another client failed: {type(error).__name__} {error}") from error
        self.check_process()
        grown_mb = self.broker.rss_bytes / MIB - self.before_mb
        if grown_mb > MOST_GROWTH_MB:
            raise Trouble(f"memory grew by more than {MOST_GROWTH_MB} MB")
        if self.beat.fault:
            raise Trouble(f"a question was not answered: {self.beat.fault}")
        slowest_s, self.beat.slowest_s = self.beat.slowest_s, 0.0
        if slowest_s > SLOWEST_ANSWER_S:
            raise Slow(f"an answer took more than {SLOWEST_ANSWER_S} s")

    def check_process(self) -> None:
        """Look at the process and at its log."""
        printed = self.broker.printed
        news, self._read_to = printed[self._read_to :], len(printed)
        if " ERROR " in news or "Traceback" in news:
            raise Trouble(f"logged: {cause(news)}", news[-20_000:])
        if not self.broker.is_running:
            raise Trouble(f"the process ended: {printed[-300:]}")

    def rest(self) -> None:
        """Close every connection, and see the memory come back."""
        self._leave()
        with RawClient(self.broker, PATIENCE_S) as client:
            topics = len(client.ask(METADATA, 1, MetadataRequest(topics=None)).topics)
        most_mb = self.before_mb + MOST_LEFT_MB + topics * TOPIC_KB / 1024
        deadline = time.monotonic() + 12
        while self.broker.rss_bytes / MIB > most_mb:
            if time.monotonic() > deadline:
                left = self.broker.rss_bytes / MIB - self.before_mb
                raise Trouble(f"memory remains: {left:.0f} MB, with {topics} topics")
            time.sleep(0.1)

    def restart(self, how: signal.Signals) -> None:
        """Stop in order or not, start again, and read all of the ledger."""
        self.beat.end()
        if how == signal.SIGKILL:
            self.broker.kill()
        else:
            self.broker.stop(how, timeout_s=30)
            self.check_log_of_the_dead()
        self.start()
        with RawClient(self.broker, PATIENCE_S) as client:
            self.ledger.read(client, 0)

    def check_log_of_the_dead(self) -> None:
        news = self.broker.printed[self._read_to :]
        if " ERROR " in news or "Traceback" in news:
            raise Trouble(f"logged: {cause(news)}", news[-20_000:])


# A traceback: its lines begin with blanks, and the one behind them names the error.
_TRACEBACK = re.compile(r"^Traceback .*\n((?:[ ].*\n)*)(\S.*)$", re.MULTILINE)


def cause(log: str) -> str:
    """Return what went wrong, where: the error and the last line of ours in its traceback, without what varies."""
    found = _TRACEBACK.search(log)
    if found is None:
        words, where = log[max(log.find(" ERROR "), 0) :].splitlines()[0], "?"
    else:
        places = re.findall(r'File ".*?/src/tidelog/([^"]+)", line (\d+)', found[1])
        words, where = found[2], ":".join(places[-1]) if places else "?"
    return re.sub(r"0x[0-9a-f]+|\d{3,}|'[^']*'", "N", words)[:160] + f" at {where}"
