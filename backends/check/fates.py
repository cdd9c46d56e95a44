"""What each runtime makes of a mistake: rejects, ignores, crashes, hangs, or computes wrong data.

A table by the ``kind`` of a finding and the runtime's letter; ``*`` stands for all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..runtime.judged import RUNTIMES, Target

FATES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "refused": {"*": "rejected"},
        "launch": {"*": "refused at launch"},
        "no-blocks": {"*": "fails at launch on this rank, and its peers hang"},
        "ignored": {"*": "never selected"},
        "crashes": {"*": "accepted, then crashes"},
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


def fate(kind: str, targets: Iterable[Target]) -> str:
    """``msccl: rejected; rccl, executor: accepted, then crashes``; '' if nothing is known."""
    known = FATES.get(kind, {})
    concerned = {runtime.name for t in targets for runtime in t.runtimes}
    does: dict[str, list[str]] = {}
    for name, runtime in RUNTIMES.items():
        what = known.get(runtime.letters, known.get("*", ""))
        if what and name in concerned:
            does.setdefault(what, []).append(name)
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in does.items())
