"""Model of time by which a library's candidates were timed."""

from __future__ import annotations

from weft.dsl.base.errors import BadFile, UnknownName
from weft.dsl.nouns.library import MANIFEST, Library
from weft.synth.time.calibrated import DATASHEET, ModelChoice
from weft.synth.time.runtime_model import RuntimeModel


def library_choice(library: Library) -> ModelChoice:
    """Return the model by name; that of data sheets, as in older libraries, where none is named."""
    try:
        return ModelChoice(str(library.timing.get("model", DATASHEET)))
    except UnknownName as error:
        where = f"{library.name}, {MANIFEST}: timing: model"
        raise BadFile(error.message, where=where, hint=error.hint) from None


def library_runtime(library: Library) -> str | None:
    """Return the runtime that the files were timed for; None where they were measured."""
    runtime = library.timing.get("runtime")
    return None if runtime is None else str(runtime)


def library_model(library: Library) -> RuntimeModel:
    """Return the model of the library's runtime on its machine, as for times by simulation."""
    return library_choice(library).on(library.topology, library_runtime(library))
