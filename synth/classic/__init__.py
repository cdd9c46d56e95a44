"""Classic algorithms, written on the builder, each with its cost formula and source."""

from .catalog import CLASSICS, classic, classic_algorithm, classics_for
from .model import Classic, Cost

__all__ = ["CLASSICS", "Classic", "Cost", "classic", "classic_algorithm", "classics_for"]
