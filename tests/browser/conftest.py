"""A headless Chromium that has no network; tests skip where there is none."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from weft.backends.cli import main

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run"
).split()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, or a skip that says what is missing."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium is installed (make test installs one as root on Debian)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, and what must stay empty: errors of its scripts, requests of anything else."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def one(self, selector: str) -> Any:
        """The first element there."""
        return self.page.locator(selector).first

    def many(self, selector: str) -> int:
        """How many there are."""
        return int(self.page.locator(selector).count())


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Opened]]:
    """Open a file; at the end nothing may have gone wrong."""
    pages: list[Opened] = []
    contexts: list[Any] = []

    def open_file(path: Path, *, width: int = 1280, scheme: str = "light") -> Opened:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        one = Opened(context.new_page())
        pages.append(one)
        one.page.on("console", lambda m: one.errors.append(m.text) if m.type == "error" else None)
        one.page.on("pageerror", lambda error: one.errors.append(str(error)))
        own = path.resolve().as_uri()
        one.page.on(
            "request", lambda r: None if r.url.split("#")[0] == own else one.requests.append(r.url)
        )
        one.page.goto(own)
        assert one.page.evaluate("document.documentElement.dataset.ready") == "yes"
        return one

    yield open_file
    found = [(one.errors, one.requests) for one in pages]
    for context in contexts:
        context.close()
    assert found == [([], [])] * len(found)


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Path]:
    """The page of some files, by the command."""

    def make(*arguments: str | Path) -> Path:
        out = tmp_path / "page.html"
        code = main(["show", *map(str, arguments), "--format", "html", "-o", str(out), "-f"])
        assert code == 0, capsys.readouterr().err
        return out

    return make
