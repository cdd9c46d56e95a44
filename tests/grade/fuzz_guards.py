"""Call linked kernels with wrong types, shapes, orders and strides: each call is a TypeError.

    python tests/grade/fuzz_guards.py [CALLS] [SEED]

On the libraries of this installation (``weft doctor --warm`` makes them): a call that got through
would run machine code on what it was not compiled for.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from guards import MODULES, fuzz

from weft.dsl.base.linked import linked


def main(calls: int = 10_000, seed: int = 0) -> int:
    libraries = {module: linked(module.__name__) for module in MODULES}
    without = [module.__name__ for module, kernels in libraries.items() if kernels is None]
    if without:
        print("no library:", *without)
        return 1
    tried, accepted = fuzz(calls, seed, lambda module: libraries[module] or {})
    print(f"{tried} wrong calls of {len(libraries)} libraries: {len(accepted)} accepted", *accepted)
    print("numba was loaded" if "numba" in sys.modules else "numba was not loaded")
    return len(accepted) > 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
