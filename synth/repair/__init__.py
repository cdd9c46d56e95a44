"""Repair of schedules after failures: changes of a schedule so that it avoids failed links.

Broken chunks (:mod:`.damage`) are routed around failed links (:mod:`.trees`) by congestion prices
(:mod:`.prices`): each chunk as a whole (:mod:`.mend`), in fractions that balance the loads
(:mod:`.balanced`), or in fewer pieces of equal size (:mod:`.even`). :mod:`.best` yields all of
them.
"""
