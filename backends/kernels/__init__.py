"""Machine code of all kernels, made before it is needed.

``types.toml`` lists the kernels that Python calls, with the types of their arguments. The wheel's
build hook and ``weft doctor --warm`` compile them for a generic processor, so that the files
(:mod:`weft.dsl.base.machine_code`) serve every machine of the architecture.
"""

from __future__ import annotations

from .compile_all import compile_all, compile_one, kernels, missing
from .declared import MODULES, declared, types_of

__all__ = [
    "MODULES",
    "compile_all",
    "compile_one",
    "declared",
    "kernels",
    "missing",
    "types_of",
]
