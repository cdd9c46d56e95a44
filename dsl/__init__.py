"""What is meant: topologies, collectives, sketches, schedules, programs and their texts.

Every noun is a frozen value with a canonical text form and an independent checker. This
folder imports nothing else of weft, and no solver.
"""
