"""Schedules of a machine, mended for what is left of it.

What is broken (:mod:`.damage`) goes around what is dead (:mod:`.trees`) where there is room
(:mod:`.prices`): as a whole (:mod:`.mend`), in shares that balance (:mod:`.balanced`), or in equal
pieces, fewer of them (:mod:`.even`). :mod:`.best` takes what is quickest.
"""
