"""Sockets of kafka-python in the process of a test.

It closes no socket whose connection is refused or given up. The collector finds it later, in another test, which then
fails by a ResourceWarning.
"""

import socket

from kafka.net.inet import KafkaNetSocket


class _SelfClosing(socket.socket):
    def __del__(self) -> None:
        self.close()


def _made(
    _: KafkaNetSocket,
    family: int = socket.AF_UNSPEC,
    kind: int = socket.SOCK_STREAM,
    protocol: int = socket.IPPROTO_TCP,
) -> socket.socket:
    return _SelfClosing(family, kind, protocol)


def close_by_themselves() -> None:
    """Let sockets of kafka-python close themselves."""
    KafkaNetSocket.socket = _made
