"""Job as a value: a function's name and its JSON argument; its answer, with errors as JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import traceback
from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from typing import Any, cast

from weft.dsl.base.errors import BrokenPlugin, NothingFound, PluginFault, WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spans import Source, Span


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Time limits of schedulers and workers, in seconds, and tries of a job."""

    connect_seconds: float = 10.0  # in which the scheduler must answer
    worker_seconds: float = 20.0  # in which there must be a worker
    return_seconds: float = 90.0  # in which a scheduler that died, and a worker, must be back
    retry_seconds: float = 0.5  # between attempts to reach a scheduler that died
    resumes: int = 10  # of the jobs of one client after a scheduler died
    gather_seconds: float = 0.02  # in which cancelled jobs are gathered
    look_seconds: float = 0.05  # between two looks at the request to stop
    starts: int = 3  # of a job whose process dies every time
    served_jobs: int = 200  # of a process, which is then replaced: libraries leave things behind
    # For which garbage is collected; at 700, it took a fifth of the time of tune.
    young_objects: int = 50_000


LIMITS = JobLimits()


@dataclass(frozen=True, slots=True)
class Job:
    """A pure function, ``module:name``, and its argument as canonical JSON text.

    Two jobs are equal if they request the same.

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


class Ending(StrEnum):
    """Kinds of endings of a job."""

    DONE = "done"  #: it returned a value
    REFUSED = "refused"  #: it raised an error of the user's or of a plug-in
    BROKEN = "broken"  #: it raised something else: a bug
    LATE = "late"  #: it was killed at its deadline
    LOST = "lost"  #: its process died as often as it was started
    CANCELLED = "cancelled"  #: its answer was no longer needed


@dataclass(frozen=True, slots=True)
class JobResult:
    """Ending of a job, with its value or error.

    Attributes:
        value: what the function returned, where it did.
        fault: the error it raised, as :func:`pack` has it; for other endings what happened.
        starts: how often it was started; more than once only if processes died.
        seconds: wall time of the last start.
        remarks: warnings about plug-ins, each with its traceback or ''.
    """

    ending: Ending
    value: Any = None
    fault: dict[str, Any] | None = None
    starts: int = 1
    seconds: float = 0.0
    remarks: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, if its value is."""
        return {name: getattr(self, name) for name in self.__slots__} | {"ending": str(self.ending)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> JobResult:
        """Build from the value of :meth:`to_json`."""
        remarks = tuple((text, trace) for text, trace in data["remarks"])
        return JobResult(**data | {"ending": Ending(data["ending"]), "remarks": remarks})

    def get(self) -> Any:
        """Return the value.

        Raises:
            WeftError: as the function raised it; NothingFound if the job was late; a bug if it
                raised something else, or its process died.
            KeyboardInterrupt: it was cancelled.
        """
        if self.ending is Ending.DONE:
            return self.value
        if self.ending is Ending.CANCELLED:
            raise KeyboardInterrupt
        raise self.error()

    def error(self) -> WeftError:
        """Return the error of a job that returned nothing, as :meth:`get` raises it."""
        fault = self.fault or {}
        if self.ending is Ending.REFUSED:
            refused = unpack(fault)
            if trace := fault.get("trace"):
                refused.__cause__ = RemoteError(trace)
            return refused
        message = str(fault.get("message", self.ending))
        if self.ending is Ending.LATE:
            return NothingFound(message, hint="give it a longer deadline")
        error = WeftError(message, hint=str(fault.get("hint", "")))
        if "trace" in fault:
            error.add_note(fault["trace"])
        return error


class RemoteError(Exception):
    """Cause of an error that a job raised in another process: its traceback there."""


def of_error(error: BaseException) -> JobResult:
    """Return the answer of a job that raised something."""
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, PluginFault | BrokenPlugin):
        return JobResult(Ending.REFUSED, fault={**pack(error), "trace": trace})
    if isinstance(error, WeftError) and error.exit_code != WeftError.exit_code:
        return JobResult(Ending.REFUSED, fault=pack(error))
    told = error.message if isinstance(error, WeftError) else error
    message = f"a bug in a job: {type(error).__name__}: {told}"[:400]
    return JobResult(Ending.BROKEN, fault={"message": message, "trace": trace})


def pack(error: WeftError) -> dict[str, Any]:
    """Return an error as JSON: its class, its text, and its other fields that JSON can hold."""
    kind = type(error)
    where: Any = error.where
    if isinstance(where, Span):
        where = [where.source.name, where.source.text, where.start, where.end]
    said = {"message": error.message, "where": where, "hint": error.hint}
    more = {}
    for key, value in vars(error).items():
        with contextlib.suppress(TypeError, ValueError):
            if key not in said:
                json.dumps(value)
                more[key] = value
    return {"class": f"{kind.__module__}:{kind.__qualname__}", **said, "more": more}


def unpack(data: dict[str, Any]) -> WeftError:
    """Rebuild the error; if its class is unknown here, of the nearest known class."""
    kind = _class(data["class"])
    error = kind.__new__(kind)
    Exception.__init__(error, data["message"])
    error.message, error.hint, where = data["message"], data["hint"], data["where"]
    if isinstance(where, list):
        name, text, start, end = where
        error.where = Span(Source(name, text), start, end)
    else:
        error.where = None if where is None else str(where)
    for key, value in data["more"].items():
        setattr(error, key, tuple(value) if isinstance(value, list) else value)
    return error


def _class(name: str) -> type[WeftError]:
    module, _, path = name.partition(":")
    try:
        found = getattr(import_module(module), path)
    except (ImportError, AttributeError):
        return WeftError
    return found if isinstance(found, type) and issubclass(found, WeftError) else WeftError
