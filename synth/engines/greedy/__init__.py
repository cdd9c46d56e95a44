"""Greedy matching in the time-expanded network, for machines of any size.

One idea per file: chunks held and wanted (:mod:`.demand`), matching on a grid of equal steps and
at any time (:mod:`.matching`), trees for chunks with few destinations (:mod:`.routes`), joint
allreduce (:mod:`.engine`), list scheduling of dependent transfers (:mod:`.lists`), transfers by the
billion (:mod:`.stream`) and their judge (:mod:`.check`). The kernels load numba, and
are imported where they are used.
"""
