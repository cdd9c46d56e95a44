"""Solvers of other packages, each run in a process that may die: CP-SAT, HiGHS, CBC, z3."""
