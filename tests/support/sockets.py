"""Tests in which a client in the process of the test may be refused a connection: kafka-python, aiokafka."""

import pytest

# It leaves the socket to the garbage collector, which must not call in another test.
LEAVES_SOCKETS = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("collect_sockets"),
]
