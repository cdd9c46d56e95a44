"""Guards of linked kernels: what is not of the declared types never reaches machine code."""

import pytest
from guards import MODULES, fuzz, guards, valid

from weft.backends.kernels import declared


def test_every_kernel_takes_what_was_declared() -> None:
    for module in MODULES:
        called = guards(module)
        assert called.keys() == declared()[module.__name__].keys()
        for name, lists in declared()[module.__name__].items():
            for place, text in enumerate(lists):
                assert called[name](*valid(module, text)) == f"{name}_{place}"


def test_no_kernel_takes_anything_else() -> None:
    tried, accepted = fuzz(500, seed=0)
    assert tried == 500
    assert accepted == []


def test_the_error_names_both_lists_of_types() -> None:
    (module,) = (m for m in MODULES if m.__name__.endswith("assignment"))
    cost, *rest = valid(module, declared()[module.__name__]["assign"][0])
    with pytest.raises(
        TypeError, match=r"assign: expected \(float64\[2\], int64.*got \(float64\[1\]"
    ):
        guards(module)["assign"](cost[0], *rest)
