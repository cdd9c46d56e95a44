"""The whole measurement, as every rank runs it; rank 0 draws the conclusions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.cluster.hierarchy import average, fcluster
from scipy.optimize import least_squares
from scipy.spatial.distance import squareform
from scipy.special import bdtrc

from weft.dsl.base.arrays import Floats, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass

from .calls import WireCaller, call_times
from .model import EFFORT, AlphaBeta, Echo, Findings, Flow, LinkClass, ProbeLimits, Shared
from .noise import MAD, Known, classes, pooled, standard_errors
from .noise import spread as noise_of
from .plan import ContentionTrial, ladder, pairs, session_of, trial_sizes, trials
from .probe import Probe, Tell, sweep_all


def survey(
    probe: Probe, effort: ProbeLimits, seed: int, tell: Tell, caller: WireCaller | None = None
) -> Findings | None:
    """Measure; return the findings on rank 0.

    ``caller``: whose calls are timed as well; None: no calls.

    Raises:
        TimeoutError, RuntimeError: of the wire.
    """
    begin = probe.wire.clock()
    rate = probe.sum_rate() if not probe.rank else None
    tell("message sizes")
    largest = _largest(probe, effort)
    sizes = ladder(largest)
    tell("pairs")
    us = sweep_all(
        probe,
        pairs(probe.ranks, sizes),
        effort,
        begin + EFFORT.pairs_share * effort.seconds,
        seed,
        tell,
    )
    flows = [e.flows[0] for s in pairs(probe.ranks, sizes) for e in s if e.bytes == sizes[0]]
    us = us.reshape(len(us), len(flows), len(sizes))  # shape (sweeps, flows, sizes)
    classes: tuple[LinkClass, ...] = ()
    remark: str | None = None
    asked: list[ContentionTrial] = []
    if not probe.rank:
        classes = link_classes(flows, sizes, us)
        lines = {flow: one.line for one in classes for flow in one.flows}
        groups, remark = groups_of(lines, probe.ranks, largest)
        asked = trials(groups, classes)
    sessions = probe.share([[(e.flows, e.bytes) for e in session_of(t, largest)] for t in asked])
    tell("what they share")
    known = [
        tuple(Echo(tuple((a, b) for a, b in f), size) for f, size in session)
        for session in sessions
    ]
    table = sweep_all(probe, known, effort, begin + effort.seconds, seed + 1, tell)
    small = _crowd(probe)
    near = probe.share([] if probe.rank else [list(group) for group in groups])
    calls = call_times(probe, caller, near, tell) if caller else ()
    if probe.rank:
        return None
    alone, together = _slopes(asked, table, trial_sizes(largest))
    # µs of a message of all at once beyond its α, if that counts: there and back, messages of all
    # ranks pass through the machine one after the other.
    usual = float(np.median([2 * line.alpha for line in lines.values()]))
    overhead = (small - usual) / (2 * probe.ranks) if small > EFFORT.crowded_ratio * usual else 0.0
    found, remarks = shared(asked, alone, together, lines, crowded=overhead > 0)
    remarks += [remark] if remark else []
    noise = noise_of(np.log(np.maximum(us.reshape(len(us), -1), 1e-6)).T)
    return Findings(
        probe.ranks,
        classes,
        groups,
        tuple(found),
        noise,
        (len(us), len(table)),
        rate,
        overhead,
        tuple(remarks),
        calls,
    )


def _largest(probe: Probe, effort: ProbeLimits) -> int:
    """A size that takes long against an empty message between the first ranks and the last."""
    ends = tuple(dict.fromkeys(((0, 1), (0, probe.ranks - 1))))

    def us(size: int) -> float:
        sessions = [(Echo((flow,), size),) for flow in ends]
        row = probe.sessions(sessions, [[3]] * len(ends), range(len(ends)))
        return float(probe.collect(row).max())

    size, empty = EFFORT.first_large_bytes, us(EFFORT.small_bytes)
    while probe.share(us(size) * EFFORT.alpha_share < empty and size * 4 <= effort.largest):
        size *= 4
    return size


def _slopes(
    asked: Sequence[ContentionTrial], table: Floats, sizes: tuple[int, int]
) -> tuple[Floats, Floats]:
    """µs per byte of each trial's first flow alone, and of all its flows together (the slowest)."""
    at = 0
    columns: list[Floats] = []
    for trial in asked:
        for flows in (1, len(trial.flows)):
            few, many = table[:, at : at + flows], table[:, at + flows : at + 2 * flows]
            at += 2 * flows
            last = many.max(axis=1)  # flows end one by one where they queue
            gain = np.maximum(last - few.max(axis=1), 0.05 * last)
            columns.append(gain / (sizes[1] - sizes[0]))
    both = np.maximum(np.array(columns).T.reshape(len(table), len(asked), 2), 1e-9)
    return both[:, :, 0], both[:, :, 1]


def _crowd(probe: Probe) -> float:
    """µs of a small echo when all ranks send one round the ring; on rank 0."""
    if probe.ranks < 3:
        return 0.0
    ring = tuple((r, (r + 1) % probe.ranks) for r in range(probe.ranks))
    rows = [
        probe.collect(probe.session((Echo(ring, EFFORT.small_bytes),), [4])[0])
        for _ in range(EFFORT.crowds)
    ]
    return float(np.max(rows, axis=1).min())  # the slowest of many ranks is often unlucky


# --- lines through times --------------------------------------------------------------------------


def link_classes(flows: Sequence[Flow], sizes: Sequence[int], us: Floats) -> tuple[LinkClass, ...]:
    """Return the classes of directions by their smallest and by their largest messages.

    ``us``: shape (sweeps, flows, sizes), of echoes that were alone.
    """
    # The mean over both directions: the smallest echoes are the same there and back.
    first = np.log(np.maximum(us[:, :, 0], 1e-6))
    place = {flow: i for i, flow in enumerate(flows)}
    small = np.asarray((first + first[:, [place[flow[::-1]] for flow in flows]]) / 2).T
    gain = np.maximum(us[:, :, -1] - us[:, :, 0], 0.02 * us[:, :, -1])
    large = np.log(np.maximum(gain, 1e-6)).T
    near = classes(small)
    label = near * len(flows)
    for name in distinct_values(near):
        label[near == name] += classes(large[near == name])
    medians = np.median(us, axis=0)
    found = []
    for name in distinct_values(label):
        inside = np.flatnonzero(label == name).tolist()
        line = line_of(np.tile(sizes, len(inside)), medians[inside].ravel())
        found.append(LinkClass(tuple(flows[i] for i in inside), line))
    return tuple(found)


def line_of(sizes: Ints, us: Floats) -> AlphaBeta:
    """Return the line of echoes that take ``us``.

    An echo takes there and back: ``α + β·bytes`` one way, and an answer of one byte the other.
    The two ways' α cannot be distinguished without a common clock, so each is half their sum.
    """
    least, most = sizes.argmin(), sizes.argmax()
    slope = (us[most] - us[least]) / max(1.0, float(sizes[most] - sizes[least]))
    start = np.array([max(us[least], 1e-3), max(slope, us[most] / sizes[most] * 1e-2)])

    def errors(x: Floats) -> Floats:
        return np.asarray((x[0] * start[0] + x[1] * start[1] * sizes) / us - 1)

    found = least_squares(
        errors, np.ones(2), bounds=(0, np.inf), loss="soft_l1", f_scale=EFFORT.loss_share
    )
    off = np.abs(errors(found.x))
    deviation = max(MAD * float(np.median(off)), float(np.sqrt(np.mean(off**2))) / 2)
    jacobian = np.asarray(found.jac)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * deviation**2
    alpha, beta = found.x * start
    error = np.sqrt(np.diag(covariance)) * start
    return AlphaBeta(
        float(alpha) / 2,
        max(float(beta), EFFORT.beta_errors * float(error[1]), 1e-9),
        float(error[0] / max(alpha, 1e-12)),
        float(error[1] / max(beta, error[1], 1e-12)),
        float(np.median(off)),
        float(off.max()),
    )


# --- groups of near ranks -------------------------------------------------------------------------
# As PLink finds them: Kandemir et al.'s trees from measured distances. The distance of two ranks is
# what small and large messages between them take, by the lines of their classes; so distances that
# were not distinguished are equal. Average linkage makes a tree of it; where merging suddenly costs
# much more than before, the tree is cut.


Groups = tuple[tuple[int, ...], ...]


def groups_of(
    found: Mapping[Flow, AlphaBeta], ranks: int, largest: int
) -> tuple[Groups, str | None]:
    """The groups, that of rank 0 first, one if all are near; and doubts, in words.

    All ranks of a group are nearer to each other than to any rank outside it.
    """
    whole = (tuple(range(ranks)),)
    if ranks < 3:
        return whole, None
    distance = _distances(found, ranks, largest)
    tree = average(squareform(distance))
    heights = tree[:, 2]
    enough = np.log1p(EFFORT.alike_share) / 2
    for cut in np.argsort(heights[:-1] - heights[1:], kind="stable").tolist():
        if heights[cut + 1] - heights[cut] < enough:
            break
        label = fcluster(tree, (heights[cut] + heights[cut + 1]) / 2, "distance")
        same = label[:, None] == label[None, :]
        inside = distance[same & ~np.eye(ranks, dtype=bool)]
        if inside.size and inside.max() < distance[~same].min() - enough / 2:
            first = {int(name): rank for rank, name in reversed(list(enumerate(label)))}
            names = sorted(first, key=first.__getitem__)
            return tuple(tuple(np.flatnonzero(label == name).tolist()) for name in names), None
    flat = float(np.ptp(distance[~np.eye(ranks, dtype=bool)])) < enough
    return whole, None if flat else "links differ, but not so that ranks fall into groups"


def _distances(found: Mapping[Flow, AlphaBeta], ranks: int, largest: int) -> Floats:
    """Logarithms, so that a tree of them looks at ratios; 0 where nothing is nearer."""
    distance = np.zeros((ranks, ranks))
    for (a, b), line in found.items():
        distance[a, b] = np.log(max(line.alpha, 1e-6) * line.us(largest)) / 2
    distance = (distance + distance.T) / 2
    least = distance[~np.eye(ranks, dtype=bool)].min()
    distance -= least
    np.fill_diagonal(distance, 0)
    return np.asarray(np.maximum(distance, 0))


# --- shared bandwidths ----------------------------------------------------------------------------
# k flows that together take b µs for each byte of one of them get k/b bytes per µs. What is slower
# together than the best of them alone shares something, unless something wider or narrower that is
# known explains it: so of all that could be shared, the fewest are kept that explain every trial.


@dataclass(frozen=True, slots=True)
class _TrialGroup:
    """Trials that are alike: µs per byte when together, and how many times that of one alone."""

    trials: tuple[ContentionTrial, ...]
    slope: Known
    slowed: Known
    certain: bool

    @property
    def flows(self) -> int:
        return len(self.trials[0].flows)

    @property
    def rate(self) -> float:
        return self.flows / self.slope.value

    def members(self, trial: ContentionTrial) -> Iterator[tuple[str, frozenset[Flow]]]:
        yield from trial.like or ((trial.name, trial.members),)


def shared(
    trials: Sequence[ContentionTrial],
    alone: Floats,
    together: Floats,
    lines: dict[Flow, AlphaBeta],
    *,
    crowded: bool = False,
) -> tuple[list[Shared], list[str]]:
    """Return the resources that flows share, and texts on the cases that remained undecided.

    ``crowded``: all ranks are in each other's way with small messages, so the whole is one of the
    shared things, whatever else explains its bandwidth.

    ``alone``, ``together``: µs per byte of each trial, shape (sweeps, trials).
    """
    candidates = list(_candidates(trials, np.log(alone).T, np.log(together).T))
    whole = [c for c in candidates if crowded and c.trials[0].kind == "everybody"]
    kept = [c for c in candidates if c.certain or c in whole]
    remarks = [
        f"{_name(c)}: {c.slowed.value:.1f} times slower together, which is within the noise"
        for c in candidates
        if c not in kept and c.slowed.value > EFFORT.shared_ratio
    ]
    gone: list[_TrialGroup] = []
    for one in reversed(tuple(kept)):  # wide before narrow: mixtures go first
        rest = [c for c in kept if c is not one]
        if one not in whole and all(_explained(trial, one, rest, lines) for trial in one.trials):
            kept, gone = rest, [*gone, one]
    if gone:
        remarks.append(
            f"{', '.join(map(_name, gone))}: slower together, as "
            f"{', '.join(map(_name, kept))} explains"
        )
    found: dict[str, Shared] = {}
    for c in kept:
        for name, flows in (x for trial in c.trials for x in c.members(trial)):
            found.setdefault(name, Shared(name, flows, c.rate, c.slope.error))
    return list(found.values()), remarks


def _candidates(
    trials: Sequence[ContentionTrial], alone: Floats, together: Floats
) -> Iterator[_TrialGroup]:
    """Yield candidates by kind and number of flows, and within these by classes of like values."""
    kinds: dict[tuple[str, int], list[int]] = {}
    for i, trial in enumerate(trials):
        kinds.setdefault((trial.kind, len(trial.flows)), []).append(i)
    slower = together - alone
    usual = float(np.median(standard_errors(slower))) if len(slower) else 0.0
    for rows in kinds.values():
        label = classes(together[rows], EFFORT.shared_ratio - 1)
        for name in distinct_values(label):
            some = [rows[i] for i in np.flatnonzero(label == name)]
            slowed = pooled(slower[some]).at_least(usual / np.sqrt(len(some)))
            certain = _certain(slower[some], slowed)
            yield _TrialGroup(
                tuple(trials[i] for i in some), pooled(together[some]), slowed, certain
            )


def _certain(slower: Floats, slowed: Known) -> bool:
    """Return True if most samples are slower, and significantly by their size or their number."""
    least = np.log(EFFORT.shared_ratio) / 2
    if slowed.value < EFFORT.shared_ratio or np.quantile(slower, 0.2) < least:
        return False
    # Sign test: how often at least this number of samples is slower if either sign is as likely.
    often = bdtrc(int((slower > least).sum()) - 1, slower.size, 0.5)
    return slowed.above(least, slower.shape[1]) or bool(often < EFFORT.shared_chance)


def _explained(
    trial: ContentionTrial,
    one: _TrialGroup,
    rest: Sequence[_TrialGroup],
    lines: dict[Flow, AlphaBeta],
) -> bool:
    """Return True if the other candidates alone explain the slowness of a trial."""
    slope = max(lines[flow].beta for flow in trial.flows)
    for other in rest:
        for something in other.trials:
            for _, flows in other.members(something):
                slope = max(slope, sum(f in flows for f in trial.flows) / other.rate)
    return slope * EFFORT.shared_ratio > one.slope.value


def _name(c: _TrialGroup) -> str:
    first = c.trials[0]
    if first.like:
        return (
            f"the two directions of {len(first.like)} pairs" if len(first.like) > 1 else first.name
        )
    return first.name if len(c.trials) == 1 else f"{first.kind} ({len(c.trials)})"
