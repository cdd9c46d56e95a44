"""The program checker: limits, bounds, connections, waits, deadlock and races.

It knows nothing of how a program was made; it judges an XML file or a Program through one
common form, the :class:`~weft.dsl.nouns.program.Code`.
"""

from ..runtime.targets import RUNTIMES, TARGETS, Target
from .checker import CheckReport, check_program, check_xml, report_program, report_xml
from .findings import Finding, Severity, errors, require_good
from .header import Sizes, sizes_of
from .prove import Proof

__all__ = [
    "RUNTIMES",
    "TARGETS",
    "CheckReport",
    "Finding",
    "Proof",
    "Severity",
    "Sizes",
    "Target",
    "check_program",
    "check_xml",
    "errors",
    "report_program",
    "report_xml",
    "require_good",
    "sizes_of",
]
