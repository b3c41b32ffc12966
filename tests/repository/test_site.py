"""The documentation site: its navigation has all pages, links lead somewhere, and no page loads from another host."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from scripts import site_pages

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]


def pages_in(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from pages_in(list(nav.values()))
    elif isinstance(nav, list):
        for entry in nav:
            yield from pages_in(entry)


def test_each_page_is_in_the_navigation_once() -> None:
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    others = [site_pages.place(ROOT / name) for name in site_pages.PAGES]
    assert sorted(pages_in(NAV)) == sorted(pages + others)


def test_the_navigation_has_the_four_kinds_of_pages() -> None:
    assert [kind for entry in NAV for kind in entry] == [
        "Home",
        "Tutorials",
        "How-to guides",
        "Reference",
        "Explanation",
    ]


@pytest.mark.parametrize("name", ["README.md", "adr/README.md"])
def test_a_list_of_pages_names_each_of_its_folder(name: str) -> None:
    index = DOCS / name if "/" in name else ROOT / name
    folder = index.parent if "/" in name else DOCS
    others = {page for page in folder.glob("*.md") if page != index}
    assert others <= set(site_pages.targets(index, index.read_text()).values())


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda page: page.name)
def test_relative_links_lead_to_files(page: Path) -> None:
    text = page.read_text()
    assert set(site_pages.LINK.findall(text)) == set(site_pages.targets(page, text))


@pytest.mark.parametrize(
    ("page", "link", "in_the_site"),
    [
        ("README.md", "docs/time.md", "time.md"),
        ("CONTRIBUTING.md", "CHANGELOG.md", "CHANGELOG.md"),
        ("docs/time.md", "compaction.md", "compaction.md"),
        ("docs/first-steps.md", "../README.md", "index.md"),
        ("docs/operations.md", "../deploy/alerts.yml", "deploy/alerts.yml.txt"),
        ("docs/adr/0001-rooms-by-links.md", "../../CHANGELOG.md", "../CHANGELOG.md"),
        ("docs/time.md", "missing.md", "missing.md"),
    ],
)
def test_links_follow_files_to_their_place_in_the_site(page: str, link: str, in_the_site: str) -> None:
    text = site_pages.with_links_of_the_site(ROOT / page, f"[a]({link}) and [b]({link}#part)")
    assert text == f"[a]({in_the_site}) and [b]({in_the_site}#part)"


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="`make docs-site` installs mkdocs")
def test_the_site_can_be_searched_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text())
    assert {"time.html", "index.html"} <= {entry["location"] for entry in index["docs"]}
    for page in tmp_path.rglob("*.html"):
        loaded = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*\bhref=\"?(?:https?:)?//"
        assert not re.search(loaded, page.read_text()), page
