"""Plans against the runtime's own collective, in one job and in turns, over a sweep of sizes.

:mod:`.job` is the job, :mod:`.ranks` runs it on every rank, :mod:`.own` has the runtime's own
collectives, and :mod:`.results` the results.
"""
