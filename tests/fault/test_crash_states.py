"""F1, F3: what a crash may leave, a sample: the states are drawn with a fixed seed, `make fault` looks at many more.

I1 to I9 hold in each: tests/fault/crash says how. A failure names its state: `make fault STATE=...` tells
what led to it.
"""

import pytest

from tests.fault.crash.explore import explore
from tests.fault.crash.scenarios import SCENARIOS

SEED = 1
SHARE = 0.02
SHARES = {"from Kafka": 0.008}  # whose states take longest
CHECKED = 0.1  # of these `fsck` reads what the crash left, what is served and what is closed
# Seconds of one processor; a busy machine may take many times that.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", SCENARIOS)
def test_I1_I2_I3_I4_I5_I6_I7_I8_I9_hold_in_what_a_crash_leaves(name: str) -> None:
    tally = explore(SCENARIOS[name], SEED, share=SHARES.get(name, SHARE), checked=CHECKED)
    broken = [f"{found.violation}  make fault STATE='{found.name}'" for found in tally.found]
    assert not broken, f"{len(broken)} of {len(tally.states)} states:\n" + "\n".join(broken[:5])
    assert len(tally.states) > 40
    assert tally.checked > 5
