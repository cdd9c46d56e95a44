"""Plans against the runtime's own collective, in one job and in turns, over a sweep of sizes.

:mod:`.job` says what is called, :mod:`.ranks` is what every rank does, :mod:`.own` the runtime's
own collectives, and :mod:`.results` what came of it.
"""
