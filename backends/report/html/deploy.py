"""Section of a library's page on what to do next: runtime, settings, launch, proof."""

from __future__ import annotations

from weft.dsl.nouns.library import Library

from ...deploy.guide import TAKES, Guide, guide
from ...deploy.launchers import PLACE as FOLDER
from ...deploy.launchers import assigned
from .sheet import Facts


def deploy_section(library: Library) -> Facts:
    """Return what makes a runtime use the library, with a place for its folder."""
    found = guide(library, FOLDER)
    rows = [
        f"{one.loader.name}: {one.loader.title}\n  {TAKES[one.loader.format]}; {one.words}"
        for one in found.runtimes
    ]
    parts = [("Which runtime", "\n".join(rows)), *_parts(found)]
    notes = [
        f"{FOLDER} is the path of this folder, where all hosts see it; weft deploy FOLDER prints "
        "these lines with it, for mpirun, Slurm, torchrun and Kubernetes",
        *found.notes,
    ]
    return {
        "id": "deploy",
        "title": "What next: make a runtime use it",
        "part": "listing",
        "open": True,
        "parts": [{"title": title, "text": text} for title, text in parts],
        "notes": [f"{note[:1].upper()}{note[1:]}." for note in notes],
    }


def _parts(found: Guide) -> list[tuple[str, str]]:
    if found.settings is None:
        return []
    debug = " ".join(assigned(*one) for one in found.settings.loader.debug)
    told = [
        ("Settings", "\n".join(assigned(*one) for one in found.variables)),
        ("Start with mpirun", found.launch["mpirun"]),
        ("Was it used?", "\n".join([f"With {debug}:", *found.proof])),
    ]
    if found.tests:
        told.append(("Before, after, and the proof", "\n".join(found.tests.values())))
    return told
