"""Tests in which kafka-python is refused a connection."""

import pytest

# It leaves the socket to the garbage collector, which must not call in another test.
LEAVES_SOCKETS = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("collect_sockets"),
]
