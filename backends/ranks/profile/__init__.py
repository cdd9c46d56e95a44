"""Measure a machine: groups of near ranks, costs of messages, and shared bandwidths.

:mod:`.probe` runs on every rank over the one point-to-point interface and times **echoes**: some
ranks each send a message to another one, which answers with a single element. :mod:`.plan` lists
them; they are repeated until their times are precise enough, and :mod:`.survey` measures pairs
first, then shared resources, and analyses the times: :mod:`.noise` separates differences from
noise. :mod:`.machine` makes a topology of all that.

:mod:`.ranks` connects ranks that are already running, :mod:`..launcher` starts them.
"""
