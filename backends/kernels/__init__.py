"""Machine code of all kernels, made before it is needed.

``types.toml`` lists the kernels that Python calls, with the types of their arguments. The wheel's
build hook and ``weft doctor --warm`` compile them for a generic processor, so that the files serve
every machine of the architecture: libraries (:mod:`weft.dsl.base.linked`), or where no C compiler
can link them what numba loads (:mod:`weft.dsl.base.machine_code`).
"""

from __future__ import annotations

from .compile_all import (
    LINKED,
    compile_all,
    compile_one,
    kernels,
    lacking,
    link_one,
    missing,
)
from .declared import MODULES, declared, parts_of, types_of
from .link import CannotLink, guards_of, runtime

__all__ = [
    "LINKED",
    "MODULES",
    "CannotLink",
    "compile_all",
    "compile_one",
    "declared",
    "guards_of",
    "kernels",
    "lacking",
    "link_one",
    "missing",
    "parts_of",
    "runtime",
    "types_of",
]
