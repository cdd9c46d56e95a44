"""Findings of a check, and their places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Code
from weft.dsl.nouns.runtime import RUNTIMES, Target


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Limits of the checks of a program, and of the lists in their messages."""

    findings: int = 20  # of one kind that are listed; the others are counted
    alike_findings: int = 8  # least number of one kind and text that are folded into one
    alike_shown: int = 3  # of those, how many are shown before they are folded
    listed_waits: int = 40  # of a deadlock cycle
    plain_edges: int = 20_000  # of graphs sorted without SciPy, which takes 150 ms to load
    moved_chunks: int = 20_000_000  # of all operations: larger programs are refused
    traced_operations: int = 100_000  # read to say which contributions a wrong chunk holds
    ordered_pairs: int = 20_000_000_000  # operations x blocks of a race proof, some ten seconds
    clock_entries: int = 50_000_000  # in memory at once; more are computed by groups of ranks


LIMITS = CheckLimits()


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"  #: it is rejected, hangs, or computes something else
    WARNING = "warning"  #: it may be rejected or go wrong elsewhere, or under other conditions
    NOTE = "note"  #: it is right, and the user of the file should know


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: check, severity, message, and place: rank, thread block and step.

    ``kind`` names the mistake in the table of consequences, ``fate`` is each runtime's
    behaviour (empty where the finding is not about a runtime).
    """

    check: str
    severity: Severity
    message: str
    rank: int | None = None
    block: int | None = None
    step: int | None = None
    kind: str = ""
    fate: str = ""

    @property
    def where(self) -> str:
        """``rank 1 tb 0 step 3``, as far as it is known."""
        parts = (("rank", self.rank), ("tb", self.block), ("step", self.step))
        return " ".join(f"{name} {value}" for name, value in parts if value is not None)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{self.severity}: {self.check}: {place}{self.told}"

    @property
    def told(self) -> str:
        """The message, and the behaviour of the runtimes."""
        return f"{self.message} [{self.fate}]" if self.fate else self.message


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that make the program wrong."""
    return tuple(f for f in findings if f.severity is Severity.ERROR)


def errors_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings by severity, otherwise in their order."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda f: order.index(f.severity)))


def require_good(findings: Iterable[Finding], what: str) -> None:
    """Raise CheckFailed with the first error among the findings, if any; ``what`` was judged."""
    wrong = errors(findings)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise CheckFailed(
            f"{wrong[0].check}: {wrong[0].told}{more}", where=f"{what} {wrong[0].where}".strip()
        )


def at_transfers(
    check: str,
    code: Code,
    where: Ints,
    message: Callable[[int], str] | str,
    severity: Severity = Severity.ERROR,
    kind: str = "",
) -> list[Finding]:
    """A finding for each transfer in ``where``; ``message`` may depend on the position there."""
    blocks = np.searchsorted(code.block_start, where[: LIMITS.findings], side="right") - 1
    found = [
        Finding(
            check,
            severity,
            _say(message, k),
            rank=int(code.block_rank[block]),
            block=int(code.block_id[block]),
            step=int(code.label[where[k]]),
            kind=kind,
        )
        for k, block in enumerate(blocks.tolist())
    ]
    return found + _rest(check, severity, len(where), message, kind)


def at_blocks(
    check: str,
    code: Code,
    where: Ints,
    message: Callable[[int], str] | str,
    kind: str = "",
) -> list[Finding]:
    """An error for each block in ``where``; ``message`` may depend on the position there."""
    found = [
        Finding(
            check,
            Severity.ERROR,
            _say(message, k),
            rank=int(code.block_rank[block]),
            block=int(code.block_id[block]),
            kind=kind,
        )
        for k, block in enumerate(where[: LIMITS.findings].tolist())
    ]
    return found + _rest(check, Severity.ERROR, len(where), message, kind)


def _say(message: Callable[[int], str] | str, k: int) -> str:
    return message if isinstance(message, str) else message(k)


def _rest(
    check: str, severity: Severity, count: int, message: Callable[[int], str] | str, kind: str
) -> list[Finding]:
    if count <= LIMITS.findings:
        return []
    last = _say(message, count - 1)
    return [
        Finding(check, severity, f"… and {count - LIMITS.findings} more like: {last}", kind=kind)
    ]


FATES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "refused": {"*": "rejected"},
        "launch": {"*": "refused at launch"},
        "no-blocks": {"*": "fails at launch on this rank, and its peers hang"},
        "ignored": {"*": "never selected"},
        "crashes": {"*": "accepted, then crashes"},
        "steps-overflow": {"*": "accepted; steps beyond the table overwrite memory"},
        "channels": {"M": "accepted with a warning, then crashes", "*": "skipped"},
        "peer-beyond": {"M": "rejected", "*": "accepted, then crashes"},
        "offset-rejected": {"*": "rejected"},
        "offset-beyond": {"*": "accepted, then addresses memory outside the buffer"},
        "offset-wraps": {"*": "accepted, then addresses another chunk"},
        "overlap": {"*": "accepted; small and large messages give different data"},
        "shared": {"*": "accepted; the FIFO is corrupted: wrong data or a hang"},
        "one-sided": {"*": "accepted, then hangs in connection setup"},
        "unconnected": {"*": "accepted, then crashes or hangs at the first use"},
        "message-number": {"*": "accepted, then hangs"},
        "message-count": {"*": "accepted; data is shifted, or it hangs"},
        "wait-nowhere": {"*": "accepted, then hangs or reads beyond the flags"},
        "wait": {"*": "accepted, then hangs"},
        "deadlock": {"*": "accepted, then hangs"},
        "race": {"*": "accepted; the data is wrong now and then"},
        "result": {"*": "accepted, computes something else"},
        "fused": {"*": "accepted, computes wrong data"},
        "memory": {"*": "out of memory when the communicator is made"},
        "late-wait": {"*": "accepted, does not wait for the rest: wrong data"},
        "intercepted": {"*": "never interpreted"},
        "portable": {},
    }
)
"""Behaviour of each runtime on a mistake: by the ``kind`` of a finding and the runtime's letter
(``*``: all others)."""


def fate(kind: str, targets: Iterable[Target]) -> str:
    """``msccl: rejected; rccl, executor: accepted, then crashes``; '' if nothing is known.

    A table by the ``kind`` of a finding and the runtime's letter; ``*`` stands for all others.
    """
    known = FATES.get(kind, {})
    concerned = {runtime.name for t in targets for runtime in t.runtimes}
    does: dict[str, list[str]] = {}
    for name, runtime in RUNTIMES.items():
        what = known.get(runtime.letters, known.get("*", ""))
        if what and name in concerned:
            does.setdefault(what, []).append(name)
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in does.items())
