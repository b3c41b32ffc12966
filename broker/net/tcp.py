"""What the system knows of a TCP connection that is not read from, of which asyncio tells nothing. Linux."""

import socket  # noqa: TID251  (here is where sockets are asked)
import sys
import termios
from fcntl import ioctl

# Of its states of a TCP connection: it is over; the other side has said that it sends no more.
CLOSED, CLOSE_WAIT = 7, 8


def state(its_socket: "socket.socket") -> int:
    """Return which state a connection is in."""
    return its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def unread_bytes(its_socket: "socket.socket") -> int:
    """Return how much has come that was not read."""
    return int.from_bytes(ioctl(its_socket.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)
