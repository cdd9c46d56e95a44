"""``make bench``: how large the HTML pages are, how long they take to make and to open.

Opening is measured in a headless Chromium, from the navigation until the page's script has drawn
the first view; where there is none, the column is empty.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from weft.backends.cli import main
from weft.dsl.nouns.schedule import write

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from pages import classic, library, written


def cases(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """What pages are made of."""
    for spec, name, kind in (
        ("ndv2:nodes=2", "ring", "allgather"),
        ("dgx-a100:nodes=8", "ring", "allgather"),
        ("dgx-a100:nodes=8", "pairwise", "alltoall"),
    ):
        path = folder / f"{kind}-{spec.partition(':')[0]}.json"
        write(path, classic(spec, name, kind))
        yield f"{kind} on {spec}", [path]
    names = ("ring", "recursive_doubling", "direct")
    front = written(folder / "front", **{n: classic("dgx1", n, "allgather") for n in names})
    yield "three schedules on dgx1", [front]
    yield "two side by side on dgx1", [front / "ring.json", front / "direct.json"]
    for spec in ("dgx1", "dgx-a100:nodes=8"):
        made = library(
            folder / spec.replace(":", "-"), spec, "allreduce", ("recursive_doubling", "ring")
        )
        yield f"library, allreduce on {spec}", [made]


def opening_ms(browser: Any, file: Path) -> float:
    """Milliseconds until the page is drawn."""
    page = browser.new_page()
    begin = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    taken = 1000 * (time.perf_counter() - begin)
    page.close()
    return taken


def measure(browser: Any) -> Table:
    """All cases."""
    table = Table("page", "KB", "made in s", "opens in ms")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, files in cases(folder):
            out = folder / "page.html"
            begin = time.perf_counter()
            assert (
                main(["show", *map(str, files), "--format", "html", "-o", str(out), "-f", "-q"])
                == 0
            )
            taken = time.perf_counter() - begin
            opens = f"{opening_ms(browser, out):.0f}" if browser else "-"
            table.add_row(title, f"{out.stat().st_size / 1000:.0f}", f"{taken:.1f}", opens)
    return table


def run() -> None:
    """Measure with the Chromium that is there, or without."""
    path = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if path is None:
        Console().print(measure(None))
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        Console().print(measure(browser))
        browser.close()


if __name__ == "__main__":
    run()
