"""GOAL: dependencies of messages as text, for LogGOPSim and ATLAHS."""
