"""MSCCL XML files of a library: each is read once, however often it is asked for."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from weft.dsl.base.files import read_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Program

from ..formats.msccl.read import XmlAlgo, program_of, read_msccl_xml
from ..formats.msccl.read.collective import fit

XML = "msccl-xml"
"""Format of these files."""


@dataclass(frozen=True)
class XmlFiles:
    """Files of a folder, by their paths in it."""

    folder: Path
    _read: dict[str, XmlAlgo] = field(default_factory=dict, compare=False, repr=False)

    def algo(self, file: str) -> XmlAlgo:
        """Return the algorithm in a file.

        Raises:
            WeftError: it cannot be read.
        """
        if file not in self._read:
            self._read[file] = read_msccl_xml(read_text(self.folder / file), file)
        return self._read[file]

    def program(self, file: str, collective: Collective) -> Program:
        """Return the program in a file.

        Raises:
            WeftError: it cannot be read, or is not of the collective.
        """
        algo = self.algo(file)
        return program_of(algo, fit(collective, algo))
