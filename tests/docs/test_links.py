"""Relative links in the documents lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page):
    """The anchors of the headings of a page, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        number = 1
        unique = anchor
        while unique in found:
            unique = f"{anchor}-{number}"
            number += 1
        found.add(unique)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_resolve(page):
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{target.name} has no heading for {link}"


def test_every_page_is_listed():
    listed = {path.partition("#")[0] for path in LINK.findall((ROOT / "docs" / "index.md").read_text())}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= listed


def test_anchors_are_made_as_on_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A, b & `c_d`\n\n## Same\n\n## Same\n\n```sh\n# no heading\n```\n")
    assert anchors(page) == {"a-b--c_d", "same", "same-1"}
