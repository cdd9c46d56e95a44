"""Fit numbers of the runtime model to measured collectives, as far as the measurements tell them.

What was measured is NCCL's (or RCCL's) own kernels, so what is fitted are the baselines' simulated
times (:mod:`weft.backends.tune.baselines`); where a file ran in their place, its program's. A
number is fitted only if the times depend on it, and not in the same way as on numbers chosen before
it: of one collective with one number of steps, for example, start and α are one number. Everything
else keeps its default, with the reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import groupby

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.timing import TimingNumber
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import Certainty, calibrated_model, host_us
from weft.synth.time.program_time import ProgramClock

from ..tune.baselines import Baseline, SwitchSums, best_of, nccl_baselines
from ..tune.nccl_settings import ANY, NcclSettings


@dataclass(frozen=True, slots=True)
class FitEffort:
    """Thresholds and limits of a fit."""

    probe: float = 1.1  # factor on a number by which the times' dependence on it is found
    effect_share: float = 0.2  # of a number's change, by which some time must change
    own_share: float = 0.25  # of a number's effect, that the numbers chosen before cannot have
    range: float = 8.0  # a fitted number is within this factor of its default
    prior: float = 0.01  # weight of the default beside one time, in units of relative error
    contradiction: float = 1.5  # between times of one collective and size
    missed: float = 2.0  # factor by which a fitted time is off that is named
    named: int = 3  # missed times that a remark names
    steps: int = 15  # of the fit, at most
    # Sizes of a collective that take part in the fit, each by the median of its times; all times
    # are held against it afterwards.
    points: int = 12


FIT = FitEffort()

ORDER = ("host", "reach", "alpha", "start", "efficiency")
"""First parts of the keys that may be fitted; of two that the times cannot tell
apart, the first is."""

PROTOCOLS = ("LL", "Simple", "LL128")
"""Last parts of keys, in the same sense."""


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """Time in µs of a collective of a message in bytes; ``where``: file and line.

    ``program``: of the file that ran in place of the runtime's own algorithms, by ``target``.
    ``settings``: which of its own the runtime might take. ``guessed``: what ran is concluded from
    the time alone.
    """

    kind: Kind
    bytes: int
    us: float
    gpus_per_process: int
    where: str
    program: Program | None = None
    target: str = ""
    settings: NcclSettings = ANY
    guessed: bool = False

    @property
    def same(self) -> tuple[Kind, int, int, str]:
        """The run and program that times must share to be compared with each other."""
        name = self.program.name if self.program else str(self.settings)
        return self.kind, self.bytes, self.gpus_per_process, name


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """A number that the measurements determine, and the default that it replaces."""

    key: str
    default: float
    value: float

    @property
    def at_end(self) -> bool:
        """True if the value is an end of the range of a fit: the times would need more."""
        ends = (self.default / FIT.range, min(self.default * FIT.range, _most(self.key)))
        return any(math.isclose(self.value, end, rel_tol=0.01) for end in ends)


@dataclass(frozen=True, slots=True)
class UntoldNumber:
    """A number that keeps its default, and the reason."""

    key: str
    default: float
    why: str


@dataclass(frozen=True, slots=True)
class Residual:
    """A measured time beside the predicted ones, with defaults and with fitted numbers.

    ``apart``: why it takes no part in the fit; empty if it does.
    """

    measured: MeasuredTime
    default_us: float
    fitted_us: float
    how: str
    apart: str

    @property
    def factor(self) -> float:
        """Return the fitted time over the measured one, or their inverse: 1 or more."""
        ratio = self.fitted_us / self.measured.us
        return max(ratio, 1 / ratio)

    @property
    def words(self) -> str:
        """Return the measured time, where it stands, and the fitted one."""
        mine = self.measured
        return (
            f"{mine.kind} of {format_bytes(mine.bytes)} took {mine.us:g} µs ({mine.where}), "
            f"fitted {self.fitted_us:.4g}"
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine with fitted numbers, the lists of fitted and unfitted ones, and the residuals."""

    topology: Topology
    told: tuple[FittedNumber, ...]
    untold: tuple[UntoldNumber, ...]
    residuals: tuple[Residual, ...]

    def error(self, *, fitted: bool) -> float:
        """Return the median relative error of the times that took part."""
        used = [r for r in self.residuals if not r.apart]
        found = [(r.fitted_us if fitted else r.default_us) / r.measured.us - 1 for r in used]
        return float(np.median(np.abs(found)))

    @property
    def doubt(self) -> str:
        """Return why the numbers are not to be trusted; empty if they explain all times."""
        return ". ".join(filter(None, (self._farther_words(), self._missed_words())))

    def _farther_words(self) -> str:
        """Return the reason to keep the defaults; empty if fitted numbers are nearer the times."""
        before, after = self.error(fitted=False), self.error(fitted=True)
        if after <= before:
            return ""
        return (
            f"the fitted numbers are further from the times than the defaults: median error "
            f"{before:.1%} before, {after:.1%} after. No one set of numbers explains these times; "
            "keep the machine as it was, or measure again while nothing else runs"
        )

    def _missed_words(self) -> str:
        """Return which times are off by more than twice, the farthest first; empty if none is."""
        off = [(r.factor, r) for r in self.residuals if not r.apart and r.factor > FIT.missed]
        if not off:
            return ""
        off.sort(key=lambda pair: -pair[0])
        named = "; ".join(r.words for _, r in off[: FIT.named]) + "; …" * (len(off) > FIT.named)
        return (
            f"the fitted numbers do not explain {len(off)} of "
            f"{sum(not r.apart for r in self.residuals)} times, which are off by more than "
            f"{FIT.missed:g} times: {named}. Times are in µs, out of place; leave out runs that "
            "were disturbed"
        )


def contradictions(times: Sequence[MeasuredTime]) -> Iterator[list[MeasuredTime]]:
    """Yield the times of one thing that are too far apart, the shortest first."""
    order = sorted(times, key=lambda t: t.same)
    for _, group in groupby(order, key=lambda t: t.same):
        same = sorted(group, key=lambda t: t.us)
        if same[-1].us > FIT.contradiction * same[0].us:
            yield same


def calibrate(
    topology: Topology,
    times: Sequence[MeasuredTime],
    runtime: str,
    source: str,
    tell: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Fit the numbers that the times of NCCL's or RCCL's kernels on a machine determine.

    ``tell`` gets the current step of the work, in words.

    Raises:
        UserError: measurements contradict each other, or no time depends on any number.
    """
    for same in contradictions(times):
        raise UserError(
            f"{same[0].kind} of {format_bytes(same[0].bytes)} took {same[0].us:g} µs "
            f"({same[0].where}) and {same[-1].us:g} µs ({same[-1].where})",
            hint="leave out the run that was disturbed",
        )
    tell(f"{len(times)} times by the defaults")
    before = _predicted(topology, times, runtime)
    used = [t for t, (_, _, apart) in zip(times, before, strict=True) if not apart]
    points = _thinned(used)
    if not points:
        why = "; ".join(dict.fromkeys(apart for _, _, apart in before)) or "there is none"
        raise UserError(
            f"no measured time can be predicted, so that nothing can be fitted: {why}",
            hint="measure allreduce and allgather: all_reduce_perf, all_gather_perf",
        )
    defaults = _defaults(topology, runtime, used)
    plain = _us(topology, points, runtime)
    effects = {}
    for i, (key, x) in enumerate(defaults.items(), start=1):
        tell(f"what times depend on: number {i} of {len(defaults)}")
        changed = _us(
            _with(topology, [TimingNumber(key, Fraction(x / FIT.probe), "")]), points, runtime
        )
        effects[key] = np.log(plain / changed) / np.log(FIT.probe)
    told, untold = _chosen(defaults, effects)
    if not told:
        raise UserError("the times depend on no number that can be fitted")
    values = _fit(topology, points, runtime, {key: defaults[key] for key in told}, tell)
    numbers = [TimingNumber(key, Fraction(f"{value:.3g}"), source) for key, value in values.items()]
    machine = _with(topology, numbers)
    tell(f"{len(times)} times as fitted")
    after = _predicted(machine, times, runtime)
    return Calibration(
        machine,
        tuple(FittedNumber(x.key, defaults[x.key], float(x.value)) for x in numbers),
        tuple(UntoldNumber(key, defaults[key], why) for key, why in untold.items()),
        tuple(
            Residual(t, b[0], a[0], a[1], b[2])
            for t, b, a in zip(times, before, after, strict=True)
        ),
    )


def _with(topology: Topology, numbers: Sequence[TimingNumber]) -> Topology:
    return replace(topology, timing=topology.timing.with_numbers(tuple(numbers)))


def _predicted(
    topology: Topology, times: Sequence[MeasuredTime], runtime: str
) -> list[tuple[float, str, str]]:
    """Return µs, program, and obstacle to a fit, for each time; the same run only once."""
    predictor = _Predictor(topology, runtime)
    known: dict[tuple[object, ...], tuple[float, str, str]] = {}
    found = []
    for one in times:
        run = (one.kind, one.bytes, one.gpus_per_process, id(one.program), one.settings)
        if run not in known:
            known[run] = predictor.of(one)
        found.append(known[run])
    return found


@dataclass(slots=True)
class _Predictor:
    """Predicted times of a machine, with the clocks and baselines that were made for them."""

    topology: Topology
    runtime: str
    clocks: dict[int, ProgramClock] = field(default_factory=dict)
    own: dict[tuple[Kind, int, NcclSettings], tuple[Baseline | SwitchSums, ...]] = field(
        default_factory=dict
    )

    def of(self, one: MeasuredTime) -> tuple[float, str, str]:
        """Return µs, program, and obstacle to a fit."""
        if one.program is not None:
            clock = self.clocks.get(id(one.program))
            if clock is None:
                model = calibrated_model(self.topology, one.target)
                clock = ProgramClock(one.program, self.topology, model)
                self.clocks[id(one.program)] = clock
            return clock.time_us(one.bytes), one.program.name, ""
        key = one.kind, one.gpus_per_process, one.settings
        if key not in self.own:
            machine = one.settings.on(self.topology)
            all_own = nccl_baselines(machine, one.kind, self.runtime, one.gpus_per_process)
            self.own[key] = tuple(one.settings.allowed(all_own))
        best = best_of(self.own[key], one.bytes)
        if best is None:
            return math.nan, "", f"no baseline of {one.kind} is known"
        return best.us, best.how, best.apart


def _thinned(times: Sequence[MeasuredTime]) -> list[MeasuredTime]:
    """Return sizes spread evenly over each collective's, each with the median of its times."""
    alike: dict[tuple[Kind, int, int, str], list[MeasuredTime]] = {}
    for one in sorted(times, key=lambda t: (t.kind, t.bytes)):
        alike.setdefault(one.same, []).append(one)
    medians = [sorted(x, key=lambda t: t.us)[(len(x) - 1) // 2] for x in alike.values()]
    found = []
    for _, group in groupby(medians, key=lambda t: t.kind):
        mine = list(group)
        picks = np.linspace(0, len(mine) - 1, min(len(mine), FIT.points)).round().astype(int)
        found += [mine[i] for i in dict.fromkeys(picks.tolist())]
    return found


def _defaults(topology: Topology, runtime: str, times: Sequence[MeasuredTime]) -> dict[str, float]:
    """Return the numbers that may be fitted, in their order, with their present values."""
    numbers = {x.key: x for x in calibrated_model(topology, runtime).numbers}
    found = {}
    for key, number in numbers.items():
        value = float(number.value)
        if key.startswith("alpha.") and number.certainty is not Certainty.GIVEN:
            value *= float(numbers[f"factor.{key.split('.')[1]}"].value)
        found[key] = value
    if any(t.gpus_per_process > 1 for t in times):
        found["host.per_gpu"] = float(host_us(topology, 1))
    rank = {**{x: i for i, x in enumerate(ORDER)}, **{x: i for i, x in enumerate(PROTOCOLS)}}
    keys = [key for key, x in found.items() if key.split(".")[0] in ORDER and 0 < x < _most(key)]
    keys.sort(key=lambda key: (rank[key.split(".")[0]], rank.get(key.split(".")[-1], 0), key))
    return {key: found[key] for key in keys}


def _us(topology: Topology, points: Sequence[MeasuredTime], runtime: str) -> Floats:
    return np.array([us for us, _, _ in _predicted(topology, points, runtime)])


def _chosen(
    defaults: dict[str, float], effects: dict[str, Floats]
) -> tuple[list[str], dict[str, str]]:
    """Return the keys to fit, and for the others the reason why not (Gram-Schmidt, in order)."""
    told: list[str] = []
    untold: dict[str, str] = {}
    for key in defaults:
        effect = effects[key]
        if np.abs(effect).max() < FIT.effect_share:
            untold[key] = "no measured time depends on it"
            continue
        basis = np.array([effects[k] for k in told]).T.reshape(len(effect), len(told))
        left = effect - basis @ np.linalg.lstsq(basis, effect, rcond=None)[0] if told else effect
        if np.linalg.norm(left) < FIT.own_share * np.linalg.norm(effect):
            alike = max(told, key=lambda k: abs(float(_cosine(effects[k], effect))))
            untold[key] = f"the times cannot tell it from {alike}"
        else:
            told.append(key)
    return told, untold


def _cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def _fit(
    topology: Topology,
    points: Sequence[MeasuredTime],
    runtime: str,
    start: dict[str, float],
    tell: Callable[[str], None],
) -> dict[str, float]:
    """Return the numbers with least relative errors of the times; outliers count less."""
    from scipy.optimize import least_squares  # takes 0.4 s to load

    keys, first = list(start), np.log(list(start.values()))
    measured = np.log([p.us for p in points])
    tries = itertools.count(1)
    most = FIT.steps * (len(keys) + 1)  # a step, and its derivative by each number

    def errors(x: Floats) -> Floats:
        tell(f"fit to {len(points)} times: {next(tries)} of {most} tries at most")
        numbers = [
            TimingNumber(k, Fraction(min(float(v), _most(k))), "")
            for k, v in zip(keys, np.exp(x), strict=True)
        ]
        times = np.log(_us(_with(topology, numbers), points, runtime))
        return np.concatenate([times - measured, FIT.prior * (x - first)])

    width = np.log(FIT.range)
    found = least_squares(
        errors,
        first,
        bounds=(first - width, first + width),
        loss="soft_l1",
        f_scale=0.2,
        diff_step=[0.02] * len(keys),
        max_nfev=FIT.steps,
    )
    values = zip(keys, np.exp(found.x).tolist(), strict=True)
    return {key: min(value, _most(key)) for key, value in values}


def _most(key: str) -> float:
    """Return the largest value of a number: shares of a bandwidth end at 1."""
    return 1.0 if key.split(".")[0] in ("reach", "efficiency") else math.inf
