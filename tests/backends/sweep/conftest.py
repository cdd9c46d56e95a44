"""Command lines in this process, with a cache of their own."""

from pathlib import Path

import pytest
from command import Ran, Weft

from weft.backends.cli import main


@pytest.fixture
def weft(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Weft:
    """``weft("sweep", "-t", "ring:3", …)``."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run(*arguments: object, stdin: str = "") -> Ran:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
