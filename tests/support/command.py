"""What a command line did, for the tests of the CLI."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ran:
    """How a command line ended, and what it wrote where."""

    code: int
    out: str
    err: str

    def ended(self, code: int, *words: str) -> Ran:
        """Itself, which ended with this exit code and said these words on stderr."""
        assert self.code == code, self.err
        assert [word for word in words if word not in self.err] == [], self.err
        assert code != 2 or "Traceback" not in self.err
        return self

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data


Weft = Callable[..., Ran]
