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

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data


Weft = Callable[..., Ran]
