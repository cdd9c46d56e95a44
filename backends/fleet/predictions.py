"""Predicted times of a run of nccl-tests: of a library's files, and of NCCL's own algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from weft.dsl.base.errors import WeftError
from weft.dsl.importers.nccl_tests import NcclTestsRun
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.library import Artefact, Library, Tuned, TunedPlan
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.schedule import read as read_schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import NCCL
from weft.synth.time.program_time import ProgramClock

from ..deploy.settings import XML, is_amd, usual_loader
from ..tune.baselines import TimedOption, best_of, nccl_baselines
from ..tune.claims import plan_clock
from ..tune.folder import XmlFiles
from ..tune.library_model import library_model
from ..tune.nccl_settings import ANY, NcclSettings
from .evidence import Predict, SizePrediction


class Predictions:
    """Times by a library in a folder and a machine, either of which may be missing."""

    def __init__(self, library: Library | None, folder: Path, topology: Topology | None) -> None:
        self._library, self._folder, self._topology = library, folder, topology
        self._programs: dict[str, Program | None] = {}
        self._clocks: dict[str, Callable[[int], float] | None] = {}
        loader = usual_loader(library) if library else None
        self._loader = loader

    @property
    def target(self) -> str:
        """Return the runtime that the library's files are for; empty if none."""
        return self._loader.name if self._loader else ""

    def files(self) -> tuple[str, ...]:
        """Return the files that the runtime takes, by their paths in the library."""
        return tuple(artefact.file for _, _, artefact in self._artefacts())

    def program(self, kind: Kind, file: str) -> Program | None:
        """Return the program in a file; None where it is not MSCCL XML, or cannot be read."""
        if file not in self._programs:
            self._programs[file] = None
            for tuned, _, artefact in self._artefacts():
                if artefact.file == file and tuned.collective.kind is kind:
                    self._programs[file] = self._read(artefact, tuned)
        return self._programs[file]

    def _read(self, artefact: Artefact, tuned: Tuned) -> Program | None:
        if artefact.format != XML:
            return None
        try:
            return XmlFiles(self._folder).program(artefact.file, tuned.collective)
        except WeftError:
            return None

    def of(self, run: NcclTestsRun, settings: NcclSettings = ANY) -> Predict:
        """Return the predictions for a run's sizes; ``settings``: those that NCCL may take."""
        kind, t = run.kind, self._topology
        own: tuple[TimedOption, ...] = ()
        if kind is not None and t is not None:
            own = self._own(kind, settings.on(t), run.gpus_per_process, settings)

        def predict(size: int, in_place: bool) -> SizePrediction:
            file = "" if kind is None else self._file(kind, size, in_place)
            best = best_of(own, size) if own else None
            return SizePrediction(
                file,
                self._file_us(kind, file, size) if kind is not None and file else None,
                best.us if best else None,
                best.how if best else "",
            )

        return predict

    def _own(
        self, kind: Kind, topology: Topology, together: int, settings: NcclSettings
    ) -> tuple[TimedOption, ...]:
        runtime = "rccl" if is_amd(topology) else NCCL
        return tuple(settings.allowed(nccl_baselines(topology, kind, runtime, together)))

    def _artefacts(self) -> Iterator[tuple[Tuned, TunedPlan, Artefact]]:
        for tuned in self._library.tuned if self._library else ():
            for plan in tuned.plans:
                for one in plan.artefacts:
                    if self._loader is None or one.format != self._loader.format:
                        continue
                    if one.format != XML or one.target == self._loader.name:
                        yield tuned, plan, one

    def _file(self, kind: Kind, size: int, in_place: bool) -> str:
        """Return the file for a message; empty without one."""
        for tuned, plan, one in self._artefacts():
            fits = tuned.collective.kind is kind and one.in_place == in_place
            if fits and plan.low <= size <= plan.high:
                return one.file
        return ""

    def _file_us(self, kind: Kind, file: str, size: int) -> float | None:
        if file not in self._clocks:
            self._clocks[file] = self._clock(kind, file)
        clock = self._clocks[file]
        return None if clock is None else clock(size)

    def _clock(self, kind: Kind, file: str) -> Callable[[int], float] | None:
        """Return the clock of a file: of its program, or of the plan that it is of."""
        if self._topology is None or self._library is None:
            return None
        if program := self.program(kind, file):
            model = library_model(self._library)
            return ProgramClock(program, self._topology, model).time_us
        for _, plan, one in self._artefacts():
            if one.file == file and one.format != XML:
                try:
                    schedule = read_schedule(self._folder / plan.schedule)
                except WeftError:
                    return None
                return plan_clock(self._library, plan, schedule)
        return None
