"""Sockets bound to every interface of this machine, by IPv4 and by IPv6.

Owns that both have one port: the loop's `create_server` would give each a free port of its own. There are two sockets,
because on one for both protocols an IPv4 client has an address in IPv6's form, in quotas and in the log too.
"""

import errno
import os
import socket  # noqa: TID251  (here is where sockets are bound)
from contextlib import ExitStack

_ADDRESSES = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))
# What a machine says that has no such protocol, or has it turned off.
_MISSING = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
# A port that is free by IPv4 may be taken by IPv6.
TRIES = 20


def bind(port: int) -> list[socket.socket]:
    """Bind to a port, IPv4 first; 0 takes one that is free for both. One socket where the machine has one protocol.

    Raises OSError.
    """
    for _ in range(1 if port else TRIES):
        try:
            return _bind_all(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port:
                raise
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _bind_all(port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    with ExitStack() as closed:  # unless all goes well
        for family, host in _ADDRESSES:
            try:
                bound = _bind_one(family, host, port)
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                continue
            closed.callback(bound.close)
            sockets.append(bound)
            port = bound.getsockname()[1]
        closed.pop_all()
    if not sockets:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return sockets


def _bind_one(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
