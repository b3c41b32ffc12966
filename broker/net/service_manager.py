"""Tells the service manager that started the broker when it is ready (sd_notify(3))."""

import logging
import os
import socket  # noqa: TID251  (one datagram to this machine)

_log = logging.getLogger(__name__)


def notify_ready() -> None:
    """Send `READY=1` to the socket that NOTIFY_SOCKET names; do nothing without it. A failure is only logged."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            # "@" begins an abstract address.
            manager.connect("\0" + address[1:] if address.startswith("@") else address)
            manager.send(b"READY=1")
    except OSError as error:
        _log.warning("service manager not notified address=%r error=%r", address, str(error))
