"""Repair of schedules after failures: changes of a schedule so that it avoids failed links.

Broken chunks are routed around failed links by congestion prices (:mod:`.trees`): as a whole, in
fractions that balance the loads, or in fewer pieces of equal size (:mod:`.mend`).
"""
