"""Topologies, collectives, sketches, schedules, programs, and their text forms.

Every noun is a frozen value with a canonical text form and an independent checker. This folder
imports no other part of weft and no solver.
"""
