"""Noun of each kind of file; those with heavy tools are loaded when such a file is read."""

from __future__ import annotations

from .data_nouns import CollectiveNoun, LibraryNoun, ResultNoun, TopologyNoun
from .noun import FileKind, Noun


def noun_of(kind: FileKind) -> Noun:
    """Return the noun of a kind of file; that of an artefact is a ``FormatNoun``."""
    match kind:
        case FileKind.SCHEDULE:
            from .schedule_noun import ScheduleNoun

            return ScheduleNoun()
        case FileKind.ALGORITHM:
            from .algorithm_noun import AlgorithmNoun

            return AlgorithmNoun()
        case FileKind.SKETCH:
            from .sketch_noun import SketchNoun

            return SketchNoun()
        case FileKind.STREAM:
            from .stream_noun import StreamNoun

            return StreamNoun()
        case FileKind.WORKLOAD:
            from .workload_noun import WorkloadNoun

            return WorkloadNoun()
        case FileKind.PLAN:
            from .plan_noun import PlanNoun

            return PlanNoun()
        case FileKind.TOPOLOGY:
            return TopologyNoun()
        case FileKind.COLLECTIVE:
            return CollectiveNoun()
        case FileKind.LIBRARY:
            return LibraryNoun()
        case FileKind.RESULT:
            return ResultNoun()
