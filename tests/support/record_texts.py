"""Plugin of pytest that keeps what the readers are given: seeds of ``tests/grade/fuzz_readers.py``.

``WEFT_TEXTS`` names the folder; a reader that has a test has a seed.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.dsl.importers import recognized
from weft.dsl.importers.workloads import read

LARGEST = 60_000
"""Characters of the longest text that is kept."""


def _keep(data: bytes) -> None:
    if len(data) < LARGEST:
        name = hashlib.sha256(data).hexdigest()[:16]
        Path(os.environ["WEFT_TEXTS"], name).write_bytes(data)


def _topology(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(importer: Any, text: str, *rest: Any) -> Any:
        made = function(importer, text, *rest)
        _keep(text.encode(errors="surrogatepass"))
        return made

    return call


def _workload(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(source: Any, *rest: Any) -> Any:
        made = function(source, *rest)
        place = Path(source.path)
        if place.is_file():
            _keep(place.read_bytes())
            return made
        files = place.iterdir() if place.is_dir() else place.parent.glob(f"{place.name}.*")
        found = sorted(x for x in files if x.suffix in (".et", ".json") and x.is_file())
        total = sum(x.stat().st_size for x in found)
        if found and total < LARGEST:
            key = hashlib.sha256(b"".join(x.read_bytes() for x in found)).hexdigest()[:16]
            folder = Path(os.environ["WEFT_TEXTS"], f"traces-{key}")
            folder.mkdir(exist_ok=True)
            for x in found:
                (folder / x.name).write_bytes(x.read_bytes())
        return made

    return call


def pytest_configure() -> None:
    """Keep what was read without an error, by importers of machines and of workloads."""
    importer: Any = recognized._BuiltInImporter
    importer.read = _topology(importer.read)
    setattr(read, "read_workload", _workload(read.read_workload))  # noqa: B010
