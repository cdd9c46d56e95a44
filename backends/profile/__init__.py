"""Measure a machine: who is near whom, what messages cost, and what they share.

:mod:`.probe` runs on every rank over the one point-to-point interface and times **echoes**: some
ranks each send a message to another one, which answers with a single element. :mod:`.plan` says
which; :mod:`.fit` makes α and β of the times, :mod:`.locality` groups of near ranks,
:mod:`.contention` shared bandwidths of what is slower together than alone, and :mod:`.machine` a
topology of all that.
"""
