"""weft turns a topology, a collective and a sketch into a checked, runnable program.

This is the whole public face. Names are loaded when first used, so `import weft` costs
nothing: neither NumPy nor any solver is loaded.

>>> import weft
>>> weft.__version__
'0.1.0'
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

# To add a public name: put it into this table and into __all__, and, for type checkers,
# into an `if TYPE_CHECKING:` block as `from weft.dsl.x import Name as Name`.
_HOME: Final = MappingProxyType[str, str]({})

__version__ = "0.1.0"

__all__: list[str] = []


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value  # so that the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
