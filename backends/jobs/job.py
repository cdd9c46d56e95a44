"""Job as a value: a function's name and its JSON argument."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from weft.dsl.base.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """A pure function, ``module:name``, and its argument as canonical JSON text.

    Two jobs are equal if they ask for the same.

    >>> Job.of("math:factorial", 5).run()
    120
    """

    function: str
    text: str

    @classmethod
    def of(cls, function: str, argument: Any) -> Job:
        """Return the job of a function and a JSON value.

        Raises:
            TypeError, ValueError: it is not JSON (NaN and infinities are not).
        """
        return cls(function, canonical(argument))

    def argument(self) -> Any:
        """Return the JSON value that the function is given."""
        return json.loads(self.text)

    def run(self) -> Any:
        """Return the function's answer, in this process."""
        module, _, name = self.function.partition(":")
        function = cast("Callable[[Any], Any]", getattr(import_module(module), name))
        return function(self.argument())


def canonical(value: Any) -> str:
    """Return the canonical JSON text of a value: keys sorted, no spaces, finite numbers.

    >>> canonical({"b": 1, "a": [1.0, "é"]})
    '{"a":[1.0,"\\\\u00e9"],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value's canonical text, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
