"""Making a schedule run and showing it: passes, checker, emitters, runners, reports, CLI.

Passes, emitters and runners know `weft.dsl` only; reports and the command line may use
`weft.synth` too.
"""
