"""How long a program takes: thread blocks, FIFOs and loop iterations on α–β links."""

from .clock import ProgramClock
from .model import MSCCL, RCCL, Cut, ProtocolModel, RuntimeModel, model_of
from .record import ProgramTimeline, record_program
from .simulate import Activity, ProgramSimulation, simulate_program

__all__ = [
    "MSCCL",
    "RCCL",
    "Activity",
    "Cut",
    "ProgramClock",
    "ProgramSimulation",
    "ProgramTimeline",
    "ProtocolModel",
    "RuntimeModel",
    "model_of",
    "record_program",
    "simulate_program",
]
