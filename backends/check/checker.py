"""The two verbs: check a file, check a program.

Later families of checks need the earlier ones: what has no sound structure has no connections,
what does not pair has no deadlock test, what deadlocks has no race proof.
"""

from __future__ import annotations

from dataclasses import replace

from weft.dsl.program import Program, Protocol

from ..listing import Listing, of_program, of_xml
from ..read.model import Remark, XmlAlgo
from .bounds import Buffers, bounds, buffers_of_program, buffers_of_xml, consistent
from .connections import connect, pairing, structure
from .deadlock import deadlock, waits
from .findings import Finding, Severity, errors
from .graph import expand
from .limits import Steps, limits, sizes, steps_of_listing, steps_of_xml
from .races import races
from .targets import MAX_COUNT, TARGETS, Target, target_named

MOST_CHUNKS = 20_000_000
"""A program that moves more chunks is not looked at."""


def check_xml(algo: XmlAlgo, target: str | None = None) -> tuple[Finding, ...]:
    """Everything wrong with a file for a runtime: ``msccl``, ``rccl`` or ``executor``.

    Without a target, what one runtime forbids is a warning, and an error if all of them do.

    Raises:
        UnknownName: there is no such target.
    """
    listing = of_xml(algo)
    steps = steps_of_xml(algo)
    chosen = [target_named(target)] if target else list(TARGETS.values())
    found = list(_silent(algo, chosen))
    refusals = [_refusals(algo, listing, steps, t) for t in chosen]
    found += refusals[0] if target else _any(refusals, chosen)
    merges, beyond = _merges(algo, chosen)
    weak = bool(target) and not chosen[0].send_flag_is_late and algo.protocol is Protocol.LL
    found += _meaning(listing, buffers_of_xml(algo), algo.placements, merges, beyond, weak)
    return _sorted(found)


def check_program(program: Program, target: str | None = None) -> tuple[Finding, ...]:
    """Everything wrong with a program; with a target, also what that runtime's limits forbid.

    Raises:
        UnknownName: there is no such target.
    """
    listing = of_program(program)
    found: list[Finding] = []
    if len(program.ranks) != program.collective.ranks:
        text = f"{len(program.ranks)} ranks for {program.collective.ranks} of the collective"
        return (Finding("structure", Severity.ERROR, text),)
    if program.message_chunks % program.collective.message_chunks or program.message_chunks < 1:
        text = (
            f"{program.message_chunks} chunks are no multiple of the collective's "
            f"{program.collective.message_chunks}"
        )
        return (Finding("structure", Severity.ERROR, text),)
    if target:
        found += limits(listing, steps_of_listing(listing), target_named(target))
    most = max(1, min(MAX_COUNT, int(listing.count.max(initial=1))))
    found += _meaning(
        listing, buffers_of_program(program), (program.in_place,), {1, most}, set(), False
    )
    return _sorted(found)


# --- what one runtime refuses ---------------------------------------------------------------------


def _refusals(
    algo: XmlAlgo, listing: Listing, steps: Steps, target: Target
) -> list[Finding]:  # fmt: skip
    found = [
        _of_remark(remark)
        for remark in algo.remarks
        if remark.rejected and target.letter in remark.runtimes
    ]
    found += limits(listing, steps, target)
    found += sizes(algo, target)
    if target.consistent_chunks:
        found += consistent(algo)
    return found


def _any(refusals: list[list[Finding]], targets: list[Target]) -> list[Finding]:
    """No target is chosen: refusals are warnings, unless every runtime has one."""
    hopeless = all(errors(found) for found in refusals)
    severity = Severity.ERROR if hopeless else Severity.WARNING
    merged: dict[Finding, list[str]] = {}
    for found, target in zip(refusals, targets, strict=True):
        for finding in found:
            merged.setdefault(finding, []).append(target.name)
    return [
        replace(f, severity=min(f.severity, severity, key=list(Severity).index)
                if f.severity is not Severity.ERROR else severity,
                message=f"{f.message} [{', '.join(names)}]")
        for f, names in merged.items()
    ]  # fmt: skip


def _silent(algo: XmlAlgo, targets: list[Target]) -> list[Finding]:
    letters = {t.letter for t in targets}
    return [
        _of_remark(remark, Severity.WARNING)
        for remark in algo.remarks
        if not remark.rejected and letters & set(remark.runtimes)
    ]


def _of_remark(remark: Remark, severity: Severity = Severity.ERROR) -> Finding:
    more = f" ({remark.times} places)" if remark.times > 1 else ""
    return Finding("reading", severity, f"{remark.span}: {remark.message}{more}")


def _merges(algo: XmlAlgo, targets: list[Target]) -> tuple[set[int], set[int]]:
    """Chunks per operation at the smallest and largest message; and 1 if that is beyond."""
    low = algo.min_bytes or 0
    high = algo.max_bytes if algo.max_bytes else 1 << 62
    chunks = max(1, algo.message_chunks)
    sizes_of_chunks = [-(-size // chunks) for size in (low, max(low, high))]
    merges = {t.merge(algo.protocol, algo.coll, size) for t in targets for size in sizes_of_chunks}
    return merges, {1} - merges


# --- what the program means -----------------------------------------------------------------------


def _meaning(
    listing: Listing, buffers: Buffers, placements: tuple[bool, ...],
    merges: set[int], beyond: set[int], weak_send_flags: bool,
) -> list[Finding]:  # fmt: skip
    """Structure, addresses, connections, waits, deadlock, races: each if those before are sound."""
    found = structure(listing)
    if int(listing.count.min(initial=0)) < 0 or int(listing.count.sum()) > MOST_CHUNKS:
        text = f"counts are negative, or more than {MOST_CHUNKS} chunks are moved in all"
        found.append(Finding("structure", Severity.ERROR, text))
    if found:
        return found
    found = bounds(listing, buffers)
    links = connect(listing)
    broken = pairing(listing, links)
    if broken:
        return found + broken
    unmet = waits(listing, expand(listing, links))
    if unmet:
        return found + unmet
    longest = max(1, int(listing.count.max(initial=1)))
    for merge in sorted({min(m, longest) for m in merges}):
        found += deadlock(listing, links, merge)
    for merge in sorted(beyond):
        found += deadlock(listing, links, merge, Severity.WARNING)
    if errors(found):
        return found
    for in_place in placements:
        found += races(listing, links, buffers, in_place=in_place)
        if weak_send_flags and not errors(found):
            found += races(listing, links, buffers, in_place=in_place, weak_send_flags=True)
    return found


def _sorted(found: list[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(sorted(found, key=lambda f: order.index(f.severity)))
