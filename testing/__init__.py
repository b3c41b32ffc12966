"""A broker for tests: `Broker`, a pytest plugin, a clock that a test moves, and faults on demand.

The public names are below, and the fixtures are in `plugin`. Names are imported on first use, since the plugin is in
every run of pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.cli.control_client import ControlError
    from tidelog.testing.broker import Broker, Topic
    from tidelog.testing.clock import Clock
    from tidelog.testing.faults import Fault, Faults
    from tidelog.testing.process import BrokerDied, BrokerError
    from tidelog.testing.snapshot import Snapshot

__all__ = [
    "Broker",
    "BrokerDied",
    "BrokerError",
    "Clock",
    "ControlError",
    "Fault",
    "Faults",
    "Snapshot",
    "Topic",
]

_HOMES = {
    "Broker": "tidelog.testing.broker",
    "BrokerDied": "tidelog.testing.process",
    "BrokerError": "tidelog.testing.process",
    "Clock": "tidelog.testing.clock",
    "ControlError": "tidelog.cli.control_client",
    "Fault": "tidelog.testing.faults",
    "Faults": "tidelog.testing.faults",
    "Snapshot": "tidelog.testing.snapshot",
    "Topic": "tidelog.testing.broker",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
