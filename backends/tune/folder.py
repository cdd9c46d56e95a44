"""The folder of a library: its files, and those that make a runtime use it.

A script is to be sourced; where a runtime takes few names of files, it makes a list of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from weft.dsl.base.errors import WeftError
from weft.dsl.base.files import read_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.library import MANIFEST, Library, dumps, read
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.runtime import LOADERS

from ..deploy.launchers import PLACE as FOLDER
from ..deploy.launchers import assigned
from ..deploy.settings import CONFIG, HERE, PLACE, one_line, settings_of, xml_target
from ..formats.msccl.read import XmlAlgo, program_of, read_msccl_xml
from ..formats.msccl.read.collective import fit

SCRIPT = "env.sh"

_HEAD = """\
# Source this before a program that shall use the library:  . DIR/env.sh
# {name}: {collectives}, messages of {low} to {high} bytes.
WEFT_LIBRARY=$(CDPATH= cd -- "$(dirname -- "${{BASH_SOURCE:-$0}}")" && pwd)
if [ ! -f "$WEFT_LIBRARY/library.json" ]; then
  echo "env.sh: this shell does not say where it is; source it in its folder, or from bash" >&2
  return 1
fi
"""


_LIST = f"""\
# More files than MSCCL_XML_FILES takes: a list of them with their paths, made once, beside them.
if ! grep -qsF "path=\\"$WEFT_LIBRARY/" "$WEFT_LIBRARY/{HERE}"; then
  sed "s|{PLACE}|$(printf %s "$WEFT_LIBRARY" | sed 's/[&|\\\\]/\\\\&/g')|" \\
    "$WEFT_LIBRARY/{CONFIG}" > "$WEFT_LIBRARY/{HERE}.$$" &&
    mv -f "$WEFT_LIBRARY/{HERE}.$$" "$WEFT_LIBRARY/{HERE}" || {{
    rm -f "$WEFT_LIBRARY/{HERE}.$$"
    echo "env.sh: source it once where its folder can be written: {HERE} is made there" >&2
    return 1
  }}
fi"""


def texts_of(library: Library, files: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return all files of a library by their path in its folder, without its page."""
    texts = {MANIFEST: dumps(library)}
    for more in files:
        texts |= more
    return texts | environment(library)


def files_in(folder: str) -> frozenset[str]:
    """Return the files in a folder, as paths in it, that an earlier library wrote, without its
    page."""
    path = Path(folder)
    if not (path / MANIFEST).is_file():
        return frozenset()
    try:
        library = read(path)
    except WeftError:
        return frozenset()
    plans = [plan for one in library.tuned for plan in one.plans]
    named = {a.file for plan in plans for a in plan.artefacts} | {p.schedule for p in plans}
    return frozenset({MANIFEST, SCRIPT, CONFIG, HERE, *named})


def environment(library: Library) -> dict[str, str]:
    """Return the environment scripts by path in the library's folder; none without MSCCL XML
    plans."""
    target = xml_target(library)
    if not target:
        return {}
    names = ", ".join(one_line(t.name) for t in library.tuned)
    head = _HEAD.format(
        name=one_line(library.name), low=library.low, high=library.high, collectives=names
    )
    asked = settings_of(library, LOADERS[target], FOLDER)
    lines = [_LIST] if asked.config else []
    lines += [f"export {assigned(*one)}" for one in asked.variables]
    script = head + "\n".join([*lines, ""])
    return {SCRIPT: script, **({CONFIG: asked.config} if asked.config else {})}


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
