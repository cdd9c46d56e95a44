"""Analyses of programs and flows that the compiler passes share."""
