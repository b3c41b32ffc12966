"""Spoiled frames for half a minute: a new seed each time, which the output names. `make fuzz` goes on without end."""

import os
import random
from pathlib import Path

import pytest

from tests.fuzz.__main__ import Fuzz, round_of, trouble_of
from tests.fuzz.frames import Case, read_cases, seeds
from tests.fuzz.play import Stand, Trouble, cause
from tests.support.raw_client import RawClient
from tidelog.protocol.registry import APIS

SECONDS = 15.0


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_spoiled_frames_harm_nobody() -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 30))
    print(f"SEED={seed}")
    fuzz = Fuzz(seed, 0, SECONDS)
    fuzz.run()
    assert fuzz.found == {}, f"seed {seed}"
    assert fuzz.number >= 3  # rounds were played


def test_a_seed_gives_the_same_cases_and_a_file_holds_them() -> None:
    first, again, other = (round_of(seed, number, bytes(16)) for seed, number in ((1, 5), (1, 5), (1, 6)))
    assert first == again != other
    assert read_cases("\n".join(case.text() for case in first)) == first
    assert all(b"".join(case.packets()) == b"".join(case.frames) for case in first)


def test_the_seeds_hold_every_api_in_every_version() -> None:
    found = {(seed.api.key, seed.version) for seed in seeds(bytes(16)) if seed.api}
    served = {
        (key, version) for key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)
    }
    assert found == served


@pytest.mark.e2e
def test_each_sign_of_trouble_is_seen(tmp_path: Path) -> None:
    """A fuzz that cannot fail shows nothing: trouble is made, and must be told."""
    with Stand(tmp_path) as place:
        place.check(random.Random(1))
        with RawClient(place.broker) as client:  # somebody writes into another's log
            place.check(random.Random(2))
            client.produce(
                "ledger-of-another", bytes(client.fetch("ledger-of-another", 0, max_bytes=1).records)
            )
        with pytest.raises(Trouble, match="offset"):
            place.check(random.Random(3))
        place.ledger.records.pop(0)
        with pytest.raises(Trouble), RawClient(place.broker) as client:
            place.ledger.read(client, 0)
        place.broker.kill()
        with pytest.raises(Trouble, match="process ended"):
            place.check_process()


def test_the_cause_of_an_error_is_told_without_what_varies() -> None:
    log = (
        "2026-01-01T00:00:00.000Z WARNING x y\n"
        "2026-01-01T00:00:00.000Z ERROR tidelog.broker.net.connection request failed peer=127.0.0.1:40000\n"
        "Traceback (most recent call last):\n"
        '  File "/somewhere/src/tidelog/broker/net/connection.py", line 12, in a\n'
        '  File "/somewhere/src/tidelog/broker/dispatch.py", line 34, in b\n'
        "ValueError: 123456 is not 'x'\n"
    )
    assert cause(log) == "ValueError: N is not N at broker/dispatch.py:34"


def test_nothing_is_wrong_with_a_case_of_sound_frames(tmp_path: Path) -> None:
    pool = seeds(bytes(16))
    sound = tuple(
        len(seed.body).to_bytes(4, "big") + seed.body for seed in pool if seed.api and seed.api.key == 18
    )
    assert trouble_of([Case(sound, 0, "half")], bytes(16)) is None
