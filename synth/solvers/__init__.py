"""Solvers of other packages, each asked in a process that may die: CP-SAT, HiGHS, CBC, z3."""
