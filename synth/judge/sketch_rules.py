"""Verify a schedule against a sketch, rule by rule; each problem names the rule and its line.

Part of the verifier: independent of the code by which engines apply the same rules. Where the
rules of :mod:`weft.dsl.nouns.sketch` can be read in several ways, they mean:

* *only*: rules add up; a transfer is allowed if one of them names its pair, or all its links.
* *relay*: a transfer of a chunk that starts on a source s, from the host of s to another host,
  uses a pair of ``through``. A sum starts on many ranks: then it is enough that one of those in
  that host may leave there.
* *own data first*: over such a pair a chunk that starts on the sender is never sent in a later
  step (in a schedule with times: never later) than one that does not.
* *peers*: the distinct ranks that a rank sends to through the switch, and those that it receives
  from, are each at most ``limit``. Few and many are wishes, not rules.
* *symmetry*: the image of every transfer (chunk, ranks, step, reduction) is a transfer. Pieces of
  one unit keep their numbers, those of a sum may be permuted; routes may use any parallel links
  or switches.
* *max hops*: a contribution that arrives has taken at most this number of transfers.
* *max detour*: it has not travelled farther than the rule allows beyond the shortest path from
  where it started; of equal copies that start on several ranks the nearest counts.
* *phases*: transfers can be given phases that never go back along the path of the data, each
  within a group of its phase; those of an allgather or alltoall do not sum, those of a
  reduce_scatter do. Different chunks may be in different phases at once.
* *chunks by size*: the schedule has one of the numbers of chunks.
* *fixed sends*: ``piece`` is the number of the chunk within its unit, from 0; steps count from 1.

A cast is a hop from each of its sources to each of its other destinations: *forbid* must name none
of these pairs and none of its links, and one *only* must name them all, or all its links. *switch
reduce, multicast, off, groups*: what the passes of casts through that switch do. Numbers of chunks
and of steps are of the whole schedule. All other rules are about transfers; a schedule with casts
does not keep them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.nouns.casts import cast_name
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import (
    CastPolicy,
    Chunks,
    ChunksBySize,
    FixedSend,
    Forbid,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Only,
    OwnFirst,
    Pair,
    Phases,
    Relay,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)

from ..fabric.fabric import fabric_of
from ..fabric.occupancy import transfer_name, transfer_of_link
from .casts import switch_passes
from .paths import detours, hops_travelled, out_of_phase

_TOLD = 8  # transfers named for one rule


def broken_rules(schedule: Schedule, sketch: Sketch, redundant: Bools) -> Iterator[str]:
    """Yield a message for each violation of a sketch by a schedule (in range, sorted by step).

    ``redundant`` marks the transfers that bring only data that is there already.
    """
    of_casts = [f"{_title(rule)}: {text}" for rule, text in _casts_broken(schedule, sketch)]
    yield from of_casts
    if of_casts:  # the others look at transfers alone
        return
    only = [r for r in sketch.rules if isinstance(r, Only)]
    if only:
        stray = ~np.logical_or.reduce([_named(schedule, r) for r in only])
        yield from _broken(schedule, only, stray, "no such rule names this hop")
    relays = [r for r in sketch.rules if isinstance(r, Relay)]
    if relays:
        yield from _relays(schedule, relays)
    for rule in sketch.rules:
        match rule:
            case Only():
                pass
            case Forbid():
                used = _links_used(schedule, rule.links) > 0
                bad = _pair_mask(schedule, rule.pairs) | used
                yield from _broken(schedule, [rule], bad, "forbidden")
            case Relay():
                pass  # all of them together
            case SwitchPolicy():
                yield from _peers(schedule, rule)
            case Symmetry():
                yield from _symmetry(schedule, rule)
            case FixedSend():
                yield from _fixed_send(schedule, rule, redundant)
            case MaxHops():
                late = hops_travelled(schedule, redundant) > rule.count
                yield from _broken(schedule, [rule], late, f"more than {rule.count} hops")
            case MaxDetour():
                yield from _broken(
                    schedule,
                    [rule],
                    detours(schedule, rule, redundant),
                    "data comes here by a longer path",
                )
            case OwnFirst():
                starts, ordered = _starts(schedule), _pair_mask(schedule, rule.pairs)
                own = starts[schedule.chunk, schedule.src]
                yield from _own_first(schedule, rule, ordered, own)
            case Phases():
                stray = out_of_phase(schedule, rule.phases, redundant)
                why = "no phase after that of its data allows it"
                yield from _broken(schedule, [rule], stray, why)
            case ChunksBySize() if schedule.collective.factor not in rule.counts:
                yield f"{_title(rule)}: units are cut into {schedule.collective.factor} chunks"
            case Chunks() if schedule.collective.sizes:
                yield f"{_title(rule)}: units are cut into chunks of unequal sizes"
            case Chunks(count=count) if schedule.collective.factor != count:
                yield f"{_title(rule)}: units are cut into {schedule.collective.factor} chunks"
            case MaxSteps(count=count) if schedule.steps > count:
                yield f"{_title(rule)}: the schedule has {schedule.steps} steps"
            case Chunks() | ChunksBySize() | MaxSteps() | CastPolicy():
                pass
            case _:
                yield f"{_title(rule)}: the verifier does not know this kind of rule"


def _title(*rules: Rule) -> str:
    def one(rule: Rule) -> str:
        return f"{rule.label!r} ({rule.span})" if rule.span else repr(rule.label)

    noun = "rule" if len(rules) == 1 else "rules"
    return f"{noun} {', '.join(map(one, rules))}"


def _broken(s: Schedule, rules: Iterable[Rule], bad: Bools, why: str) -> Iterator[str]:
    where = np.flatnonzero(bad).tolist()
    title = _title(*rules)
    for i in where[:_TOLD]:
        yield f"{transfer_name(s, i)}: {title}: {why}"
    if len(where) > _TOLD:
        yield f"{title}: {len(where) - _TOLD} more transfers break it"


# --- hops -----------------------------------------------------------------------------------------


def _pair_mask(s: Schedule, pairs: Iterable[Pair]) -> Bools:
    """Transfers whose (source, destination) is one of some pairs."""
    n = s.topology.ranks
    keys = np.array([u * n + v for u, v in pairs], np.int64)
    mask: Bools = np.isin(s.src.astype(np.int64) * n + s.dst, keys)
    return mask


def _links_used(s: Schedule, links: frozenset[int]) -> Ints:
    """Per transfer: the number of links of its route that are in ``links``."""
    hit = np.isin(s.route_links, np.array(sorted(links), np.int64))
    counts = np.bincount(transfer_of_link(s), weights=hit, minlength=len(s))
    return counts.astype(np.int64)


def _named(s: Schedule, rule: Only) -> Bools:
    if not rule.links:
        return _pair_mask(s, rule.pairs)
    all_named: Bools = _links_used(s, rule.links) == np.diff(s.route_start)
    return _pair_mask(s, rule.pairs) | all_named


def _starts(s: Schedule) -> Bools:
    """Initial placement of the chunks: shape (chunks, ranks)."""
    table = np.zeros((s.collective.chunks, s.collective.ranks), bool)
    table[s.collective.pre.chunks, s.collective.pre.ranks] = True
    return table


def _relays(s: Schedule, rules: list[Relay]) -> Iterator[str]:
    starts = _starts(s)
    names: dict[int | None, int] = {}
    host = np.array([names.setdefault(h, len(names)) for h in s.topology.host_of])
    relayed = [_pair_mask(s, rule.through) for rule in rules]
    leaves = host[s.src] != host[s.dst]
    free = np.zeros(len(s), bool)
    bound = [np.zeros(len(s), bool) for _ in rules]
    for which, sources in _alike(rules, s.topology.ranks).items():
        # home[c, h]: chunk c starts on one of these ranks in host h.
        home = np.zeros((s.collective.chunks, len(names)), bool)
        for source in sources:
            home[:, host[source]] |= starts[:, source]
        mine = home[s.chunk, host[s.src]]
        allowed = mine.copy()
        for i in which:
            allowed &= relayed[i]
            bound[i] |= mine
        free |= allowed
    for i, rule in enumerate(rules):
        stray = leaves & bound[i] & ~free
        yield from _broken(s, [rule], stray, "the chunk leaves its host elsewhere")
        if rule.own_first:
            yield from _own_first(s, rule, relayed[i], starts[s.chunk, s.src])


def _alike(rules: list[Relay], ranks: int) -> dict[tuple[int, ...], list[int]]:
    """Ranks by the rules (their numbers) that name them."""
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(ranks):
        which = tuple(i for i, rule in enumerate(rules) if rank in rule.sources)
        found.setdefault(which, []).append(rank)
    return found


def _own_first(s: Schedule, rule: Relay | OwnFirst, relayed: Bools, own: Bools) -> Iterator[str]:
    when = s.step if s.start_us is None else s.start_us
    pair = s.src.astype(np.int64) * s.topology.ranks + s.dst
    late = np.zeros(len(s), bool)
    for key in distinct_values(pair[relayed]).tolist():
        mine = np.flatnonzero(pair == key)
        foreign = when[mine][~own[mine]]
        if len(foreign):
            late[mine] = own[mine] & (when[mine] > foreign.min())
    yield from _broken(s, [rule], late, "the sender's own chunk comes after another's")


def _peers(s: Schedule, rule: SwitchPolicy) -> Iterator[str]:
    if rule.limit is None:
        return
    table = fabric_of(s.topology)
    through = np.zeros(len(s), bool)
    through[transfer_of_link(s)[table.dst[s.route_links] == rule.switch]] = True
    pairs = np.unique(np.stack([s.src[through], s.dst[through]], axis=1), axis=0)
    for column, verb in ((0, "sends to"), (1, "receives from")):
        for rank, count in sorted(Counter(pairs[:, column].tolist()).items()):
            if count > rule.limit:
                name = s.topology.nodes[rule.switch].name
                yield f"{_title(rule)}: rank {rank} {verb} {count} peers through {name}"


# --- symmetry -------------------------------------------------------------------------------------

_Unit = tuple[frozenset[tuple[int, frozenset[int]]], frozenset[tuple[int, frozenset[int]]]]
_Sends = tuple[tuple[int, int, int, bool], ...]


def _symmetry(s: Schedule, rule: Symmetry) -> Iterator[str]:
    n = s.topology.ranks
    if sorted(rule.image) != list(range(n)):
        yield f"{_title(rule)}: it is not a permutation of the {n} ranks"
        return
    here = _units(s, tuple(range(n)))
    for unit, chunks in _units(s, rule.image).items():
        if len(here.get(unit, ())) != len(chunks):
            yield f"{_title(rule)}: it does not map {s.collective} to itself (chunk {chunks[0]})"
            return
    sends, moved = _sends(s, tuple(range(n))), _sends(s, rule.image)
    grains = s.collective.grains.tolist()
    for unit, chunks in _units(s, rule.image).items():
        if len(unit[0]) > 1:  # pieces of a sum: each to any other of its size
            before = sorted((grains[c], moved.get(c, ())) for c in chunks)
            after = sorted((grains[c], sends.get(c, ())) for c in here[unit])
            if before != after:
                yield f"{_title(rule)}: the pieces of a sum are not moved to each other"
            continue
        # The k-th chunk of a unit goes to the k-th of its image: pieces keep their number.
        for chunk, image in zip(chunks, here[unit], strict=True):
            if moved.get(chunk, ()) != sends.get(image, ()):
                yield (
                    f"{_title(rule)}: the transfers of chunk {image} are not the images of those "
                    f"of chunk {chunk}"
                )
                break


def _units(s: Schedule, image: tuple[int, ...]) -> dict[_Unit, list[int]]:
    """Chunks by their form after renaming the ranks: their starts and ends, with contributions."""
    sets = [frozenset(image[r] for r in members) for members in s.collective.contributions]

    def rows(p: Placement) -> dict[int, set[tuple[int, frozenset[int]]]]:
        table: defaultdict[int, set[tuple[int, frozenset[int]]]] = defaultdict(set)
        for rank, chunk, k in zip(
            p.ranks.tolist(), p.chunks.tolist(), p.sets.tolist(), strict=True
        ):
            table[chunk].add((image[rank], sets[k]))
        return table

    pre, post = rows(s.collective.pre), rows(s.collective.post)
    units: defaultdict[_Unit, list[int]] = defaultdict(list)
    for chunk in range(s.collective.chunks):
        units[frozenset(pre.get(chunk, ())), frozenset(post.get(chunk, ()))].append(chunk)
    return units


def _sends(s: Schedule, image: tuple[int, ...]) -> dict[int, _Sends]:
    """The transfers of each chunk after renaming the ranks, in one order."""
    where = np.array(image)
    table: defaultdict[int, list[tuple[int, int, int, bool]]] = defaultdict(list)
    columns = (s.step, where[s.src], where[s.dst], s.reduce)
    for chunk, *send in zip(s.chunk.tolist(), *(c.tolist() for c in columns), strict=True):
        table[chunk].append((send[0], send[1], send[2], send[3]))
    return {chunk: tuple(sorted(sends)) for chunk, sends in table.items()}


# --- sends ----------------------------------------------------------------------------------------


def _moving(c: Collective) -> Bools:
    """Chunks that some rank wants and does not start with; all, where sums are wanted."""
    if c.combining:
        return np.ones(c.chunks, bool)
    start = c.pre.ranks.astype(np.int64) * c.chunks + c.pre.chunks
    end = c.post.ranks.astype(np.int64) * c.chunks + c.post.chunks
    moving = np.zeros(c.chunks, bool)
    moving[np.setdiff1d(end, start) % c.chunks] = True
    return moving


def _place_in_unit(c: Collective) -> Ints:
    """Which piece of its unit each chunk is, from 0."""
    opens = np.cumsum(c.grains) - c.grains
    unit = opens // c.factor
    found: Ints = np.arange(c.chunks) - np.searchsorted(unit, unit)
    return found


def _fixed_send(s: Schedule, rule: FixedSend, redundant: Bools) -> Iterator[str]:
    """A send that must be brings something new; chunks that need not move are not meant."""
    c = s.collective
    chosen = np.isin(np.arange(c.chunks), c.pre.chunks[c.pre.ranks == rule.owner])
    if rule.target is not None:
        chosen &= np.isin(np.arange(c.chunks), c.post.chunks[c.post.ranks == rule.target])
    if rule.piece is not None:
        chosen &= _place_in_unit(c) == rule.piece
    there = _pair_mask(s, [rule.pair]) & chosen[s.chunk]
    if rule.step is not None:
        there &= s.step == rule.step - 1
    if not rule.must:
        yield from _broken(s, [rule], there, "this send is ruled out")
        return
    there &= ~redundant
    chosen &= _moving(c)
    if not chosen.any():
        yield f"{_title(rule)}: the collective lacks the chunk"
    sent = np.zeros(c.chunks, bool)
    sent[s.chunk[there]] = True
    when = f" in step {rule.step - 1}" if rule.step is not None else ""
    for chunk in np.flatnonzero(chosen & ~sent).tolist()[:_TOLD]:
        yield f"{_title(rule)}: chunk {chunk} is not sent {rule.pair[0]} -> {rule.pair[1]}{when}"


# --- casts ----------------------------------------------------------------------------------------


def _casts_broken(schedule: Schedule, sketch: Sketch) -> Iterator[tuple[Rule, str]]:
    """Yield each rule that a cast breaks, and how."""
    if not len(schedule.casts):
        return
    only = [rule for rule in sketch.rules if isinstance(rule, Only)]
    for i, one in enumerate(schedule.casts):
        name, links = cast_name(one, i), frozenset(one.links)
        pairs = frozenset((s, d) for s in one.sources for d in one.destinations if s != d)
        if only and not any(pairs <= r.pairs or links <= r.links for r in only):
            yield only[0], f"{name}: no such rule names all its hops"
        for rule in sketch.rules:
            if isinstance(rule, Forbid) and (pairs & rule.pairs or links & rule.links):
                yield rule, f"{name}: forbidden"
    for rule in sketch.rules:
        if isinstance(rule, CastPolicy):
            yield from ((rule, text) for text in _beyond(schedule, rule))
        elif not _cast_keeps(rule):
            yield rule, "the rule is about transfers, and the schedule has casts"


def _cast_keeps(rule: Rule) -> bool:
    """Return True if casts cannot break a rule, or it was looked at."""
    if isinstance(rule, SwitchPolicy):
        return rule.limit is None
    return isinstance(rule, Only | Forbid | Chunks | ChunksBySize | MaxSteps)


def _beyond(schedule: Schedule, rule: CastPolicy) -> Iterator[str]:
    """Yield uses of a switch by casts that the rule does not allow."""
    groups: set[frozenset[int]] = set()
    name = schedule.topology.nodes[rule.switch].name
    for i, one in enumerate(schedule.casts):
        for switch, before, after in switch_passes(schedule.topology, one):
            if switch != rule.switch:
                continue
            sides = {"reduces": before, "multicast": after}
            used = {word: side for word, side in sides.items() if len(side) > 1}
            stray = () if rule.allowed is None else sorted(used.keys() - rule.allowed)
            for word in stray:
                does = "sums" if word == "reduces" else "copies"
                yield f"{cast_name(one, i)}: {name} {does}"
            if used:
                groups.add(frozenset(chain.from_iterable(used.values())))
    if rule.groups is not None and len(groups) > rule.groups:
        yield f"the casts use {len(groups)} groups of {name}"
