"""A turn of the event loop is shared by those who have much to ask."""

import asyncio
from time import monotonic

from tidelog.broker.turns import TURN_S, Turns


async def test_many_connections_share_one_turn() -> None:
    turns = Turns(asyncio.get_running_loop())
    before = monotonic()
    assert turns.ends() - before >= TURN_S
    for _ in range(3):
        shares = [turns.ends() - monotonic() for _ in range(40)]
        await asyncio.sleep(0)
    assert max(shares) < TURN_S / 39
    assert sum(shares) < TURN_S * 41 / 40
    turns.ends()
    await asyncio.sleep(0)
    before = monotonic()
    assert turns.ends() - before >= TURN_S
