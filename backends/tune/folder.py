"""The folder of a library: its files, and those that make a runtime use it.

A script is to be sourced; where a runtime takes few names of files, it makes a list of them.

Sources: microsoft/msccl 0.7.4 (``topo.cc``, ``tuning.cc``), ROCm/rccl (``msccl_lifecycle.cc``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.dsl.base.errors import WeftError
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.library import MANIFEST, Library, TunedPlan, dumps, read

MOST_NAMED = 4
"""Largest number of ``MSCCL_XML_FILES`` that microsoft/msccl loads; more need a
``MSCCL_CONFIG``."""

CONFIG = "msccl-config.xml"
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
    return frozenset({MANIFEST, SCRIPT, CONFIG, *named})


def environment(library: Library) -> dict[str, str]:
    """Return the environment scripts by path in the library's folder; none without MSCCL XML
    plans."""
    named = [
        (plan, a)
        for one in library.tuned
        for plan in one.plans
        for a in plan.artefacts
        if a.format == "msccl-xml"
    ]
    if not named:
        return {}
    names = ", ".join(_one_line(t.name) for t in library.tuned)
    head = _HEAD.format(
        name=_one_line(library.name), low=library.low, high=library.high, collectives=names
    )
    target = named[0][1].target
    if target != "msccl":
        return {SCRIPT: head + _folder(target)}
    lines = []
    if any(t.collective.kind is Kind.ALLREDUCE for t in library.tuned):
        # The one collective that asks for leave: elsewhere a file that fits is taken.
        lines.append("export NCCL_ALGO=MSCCL,RING,TREE")
    if any(plan.protocol != "Simple" for plan, _ in named):
        used = ",".join(dict.fromkeys(("Simple", *(plan.protocol for plan, _ in named))))
        lines.append(f"export NCCL_PROTO={used}")
    if len(named) <= MOST_NAMED:
        files = ":".join(f"$WEFT_LIBRARY/{a.file}" for _, a in named)
        return {SCRIPT: head + "\n".join([*lines, f'export MSCCL_XML_FILES="{files}"', ""])}
    lines += [
        f"# {len(named)} files are more than MSCCL_XML_FILES takes: a list of them, with their "
        "paths here.",
        'export MSCCL_CONFIG="$(mktemp "${TMPDIR:-/tmp}/weft-msccl-XXXXXX")"',
        f'sed "s|@LIBRARY@|$WEFT_LIBRARY|" "$WEFT_LIBRARY/{CONFIG}" > "$MSCCL_CONFIG"',
        "",
    ]
    rows = [_load(plan, a.file) for plan, a in named]
    config = "\n".join(["<msccl_algos>", *rows, "</msccl_algos>", ""])
    return {SCRIPT: head + "\n".join(lines), CONFIG: config}


def _one_line(name: str) -> str:
    """Return a name as one line for a comment of a script.

    Machines and collectives may have any name, and text after the end of a line would be executed.
    """
    return " ".join(name.split()) if name.isprintable() else ascii(name)


def _load(plan: TunedPlan, file: str) -> str:
    return (
        f'  <load path="@LIBRARY@/{file}" minbytes="{plan.low}" maxbytes="{plan.high + 1}" '
        f'proto="{plan.protocol}"/>'
    )


def _folder(target: str) -> str:
    """Return the script for runtimes that load all files of one folder."""
    lines = ['export MSCCL_ALGO_DIR="$WEFT_LIBRARY/msccl-xml"']
    if target == "rccl":
        lines += ["export RCCL_MSCCL_ENABLE=1", "export RCCL_MSCCL_FORCE_ENABLE=1"]
    return "\n".join([*lines, ""])
