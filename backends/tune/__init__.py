"""Tuning: the best plan per message size, of all that weft can make for a machine.

Schedules come from every engine, classic algorithm and fitting sketch (:mod:`.asks`), each is
compiled in many ways (:mod:`.variants`) and timed by simulating the program (:mod:`.work`) in
rounds that drop what cannot win (:mod:`.race`). Few plans are chosen so that none loses much at any
size nor anything to the baseline, and the sizes where they change are found exactly
(:mod:`.choose`). What is chosen is compiled again under all checks and written (:mod:`.artefacts`).
"""
