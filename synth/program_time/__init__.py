"""How long a program takes: thread blocks, FIFOs and loop iterations on α–β links."""

from .model import MSCCL, RCCL, Cut, ProtocolModel, RuntimeModel
from .simulate import Activity, ProgramSimulation, simulate_program

__all__ = [
    "MSCCL",
    "RCCL",
    "Activity",
    "Cut",
    "ProgramSimulation",
    "ProtocolModel",
    "RuntimeModel",
    "simulate_program",
]
