"""Plans against the runtime's own collective, in one job and in turns, over a sweep of sizes.

:mod:`.job` is the job and its results, :mod:`.ranks` runs it on every rank.
"""
