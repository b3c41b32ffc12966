"""`make soak` does its rounds, and sees what it is there to see."""

from pathlib import Path

import pytest

from tests.fault.soak import Told, soak


@pytest.mark.e2e
@pytest.mark.slow
def test_F2_a_few_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert soak(3, 1, "test", tmp_path) == 3
    assert "3 kills" in capsys.readouterr().out
    assert soak(3, 0, "test", tmp_path) == 0
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({10: (9, 1)}, "at 10 is"),
        ({10: (20, 5), 15: (19, 6)}, "earlier than"),
        ({10: (20, 5), 21: (30, 4)}, "before"),
        ({10: (20, 9)}, "behind the end"),
        ({10: (-1, -1), 12: (30, 1)}, "earlier than"),
        ({7: (8, 1)}, "at 7 was"),
        ({7: (-1, -1)}, "at 7 was"),
    ],
)
def test_S52_an_append_time_that_goes_back_or_changes_is_noticed(
    answers: dict[int, tuple[int, int]], words: str
) -> None:
    told = Told("appends-0", answers)
    with pytest.raises(AssertionError, match=words):
        told.judge({7: (8, 0)}, 9)


def test_S52_append_times_that_stay_are_right() -> None:
    answers = {5: (8, 0), 7: (8, 0), 9: (20, 5), 20: (20, 5), 21: (-1, -1), 30: (-1, -1)}
    Told("appends-0", answers).judge({7: (8, 0), 30: (-1, -1)}, 6)
