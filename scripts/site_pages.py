"""What mkdocs needs to build the site from docs/ as it is (a hook of mkdocs.yml).

Pages link to files outside of docs/, as readers of the repository need it. The site gets those files: README.md as its
first page, other pages at their path, and all else as text. Links follow.
"""

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")


def place(path: Path) -> str:
    """Return where the site has a file of the repository, as mkdocs names its sources."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return "index.md" if name == "README.md" else name if name in PAGES else f"{name}.txt"


def targets(page: Path, text: str) -> dict[str, Path]:
    """Return the files of the repository that a page links to, by link."""
    found = {link: Path(os.path.normpath(page.parent / link)) for link in LINK.findall(text)}
    return {link: path for link, path in found.items() if path.is_file() and path.is_relative_to(ROOT)}


def with_links_of_the_site(page: Path, text: str) -> str:
    """Return the text of a page with its links as they are in the site; broken ones stay, for mkdocs to report."""
    start = Path(place(page)).parent
    links = {link: os.path.relpath(place(path), start) for link, path in targets(page, text).items()}
    return LINK.sub(lambda link: links.get(link[0], link[0]), text)


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside of docs/."""
    from mkdocs.structure.files import File  # not installed where only the tests run

    pages = [*(ROOT / name for name in PAGES), *DOCS.rglob("*.md")]
    linked = {path for page in pages for path in targets(page, page.read_text(encoding="utf-8")).values()}
    for path in sorted(linked.union(pages)):
        if not path.is_relative_to(DOCS):
            files.append(File.generated(config, place(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page."""
    return with_links_of_the_site(Path(page.file.abs_src_path), markdown)
