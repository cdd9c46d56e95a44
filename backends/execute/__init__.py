"""The interpreter: executes MSCCL XML files and programs on NumPy data, for all ranks."""

from ..formats.msccl.read.collective import collective_of
from .execute import Execution, execute, run_algo, run_program, run_xml
from .machine import MessageShape

__all__ = [
    "Execution",
    "MessageShape",
    "collective_of",
    "execute",
    "run_algo",
    "run_program",
    "run_xml",
]
