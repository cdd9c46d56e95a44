"""Measure a machine: who is near whom, what messages cost, and what they share.

:mod:`.probe` runs on every rank over the one point-to-point interface and times **echoes**: some
ranks each send a message to another one, which answers with a single element. :mod:`.plan` says
which; they are repeated until they are known well enough, and :mod:`.survey` asks first about
pairs, then about what they share. The rest looks at the numbers: :mod:`.noise` tells
differences from noise, :mod:`.fit` makes α and β, :mod:`.locality` groups of near ranks,
:mod:`.contention` shared bandwidths, and :mod:`.machine` a topology of all that.

:mod:`.ranks` connects ranks that somebody started, :mod:`..launcher` starts them.
"""
