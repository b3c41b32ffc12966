"""docs/config.md: a broker takes its recipes as they are."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tidelog.config.load import load
from tidelog.config.topic_options import TopicConfig
from tidelog.config.units import plain

PAGE = (ROOT / "docs" / "config.md").read_text()
FILE = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)[0]
(ROWS,) = re.findall(r"\| goal \| options \|\n\| --- .*\n((?:\|.*\n)+)", PAGE)


def test_the_file_of_the_recipes_is_a_configuration_without_notes(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(FILE)
    assert load(file).notes == ()


@pytest.mark.parametrize("row", ROWS.splitlines())
def test_options_of_a_recipe_change_a_topic(row: str) -> None:
    settings = dict(re.findall(r"`([a-z.]+)=(\S+?)`", row.split("|")[2]))
    assert settings
    topic = TopicConfig().override({name: plain(name, text) for name, text in settings.items()})
    assert topic != TopicConfig()
