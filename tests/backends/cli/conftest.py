"""Running command lines in this process."""

from __future__ import annotations

import io

import pytest

from command import Ran, Weft
from weft.backends.cli import main


@pytest.fixture
def weft(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Weft:
    """``weft("synth", "-t", "ring:3", …)``, with nothing on standard input."""

    def run(*arguments: object, stdin: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
