"""Classic algorithms, written on the builder, each with its cost formula and source."""

from .catalog import CLASSICS, classic, classic_algorithm, classics_for
from .model import Cost, Flat

__all__ = ["CLASSICS", "Cost", "Flat", "classic", "classic_algorithm", "classics_for"]
