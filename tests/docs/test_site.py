"""The site builds strictly: each page in the navigation, each link and anchor leading somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from until import HANGS

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"<(?:script|img|link)[^>]*(?:src|href)=\"(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    return made


def test_every_page_is_there(site: Path) -> None:
    pages = {p.stem for p in (ROOT / "docs").glob("*.md")}
    assert {p.stem for p in site.glob("*.html")} >= pages


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        assert FETCHED.search(page.read_text(encoding="utf-8")) is None, page.name


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(docs/(\S+?\.md)\)", text))
    assert linked == {p.name for p in (ROOT / "docs").glob("*.md")}
