"""Greedy matching in the time-expanded network, for machines of any size.

One idea per file: the machine as arrays (:mod:`.machine`), who has and who wants what
(:mod:`.demand`), matching on a grid of equal steps (:mod:`.grid`) and at any time
(:mod:`.events`), ways for what has few destinations (:mod:`.routes`, :mod:`.trees`), transfers
that wait for each other (:mod:`.lists`), transfers by the billion (:mod:`.stream`) and their
judge (:mod:`.check`). The ``*_kernel`` modules load numba, and are imported where they are used.
"""
