"""Options of tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from weft import __version__
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.schedule import Schedule
from weft.synth.time.calibrated import DATASHEET, USUAL_MODEL

from ..compile.variants import Variant
from .artefacts import Wanted
from .asks import Named
from .measure import Measuring

NVIDIA_PROTOCOLS = ("Simple", "LL", "LL128")
AMD_PROTOCOLS = ("Simple", "LL")


@dataclass(frozen=True, slots=True, eq=False)
class Warm:
    """Former plan's schedule, repaired for this machine; and its variant, if it may be used
    again."""

    schedule: Schedule
    form: Variant | None = None


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of tuning.

    Attributes:
        sizes: messages in bytes. ``within``: a plan may take so much more than the best at a size,
            as a share, for the sake of few plans.
        effort: of each question to an engine. seconds: of CPU, after which one is cut off.
            ``protocols``: empty: those of the runtime.
        engines: instead of the usual ones. ``sketches``: beside those of the shelf.
        warm: former plans that join the race, by name.
        forms: ways to compile that were good on a machine like this one; with them the race is
            short: few questions to the engines, and no other forms than these.
        measuring: run the schedules instead of simulating their programs.
        model: that times programs: :data:`.DATASHEET` or :data:`.CALIBRATED`.
    """

    sizes: SizeRange
    wanted: Wanted = field(default_factory=Wanted)
    within: float = 0.03
    effort: float = 3.0
    seconds: float | None = None
    seed: int = 0
    protocols: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    sketches: tuple[Named, ...] = ()
    warm: Mapping[str, Warm] = field(default_factory=dict)
    forms: tuple[Variant, ...] = ()
    measuring: Measuring | None = None
    model: str = USUAL_MODEL

    @property
    def raced_protocols(self) -> tuple[str, ...]:
        """Return the protocols that take part."""
        usual = AMD_PROTOCOLS if self.wanted.runtime == "rccl" else NVIDIA_PROTOCOLS
        lacking = {name for name in usual if self.wanted.without(name)}
        return self.protocols or tuple(name for name in usual if name not in lacking)


def provenance(options: TuneOptions, sketches: Sequence[str]) -> dict[str, Any]:
    """Return the inputs from which a library can be made again; ``sketches``: as named."""
    return {
        "weft": __version__,
        "seed": options.seed,
        "effort_per_question": options.effort,
        **({} if options.seconds is None else {"cut_off_s": options.seconds}),
        "sketches": list(sketches),
        "engines": list(options.engines),
    }


def timing_of(options: TuneOptions) -> dict[str, Any]:
    """Return how candidates were timed, for the manifest."""
    if how := options.measuring:
        return {"by": "measurement", "on": how.on, "turns": how.repeat, "within": options.within}
    return {
        "by": "simulation",
        "runtime": options.wanted.runtime,
        "protocols": list(options.raced_protocols),
        "within": options.within,
        **({} if options.model == DATASHEET else {"model": options.model}),
    }
