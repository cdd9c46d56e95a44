"""Classic algorithms, written on the builder, each with its cost formula and source."""

from .catalog import CLASSICS, classic, classic_algorithm, classics_for
from .model import Flat, HockneyCost

__all__ = ["CLASSICS", "Flat", "HockneyCost", "classic", "classic_algorithm", "classics_for"]
