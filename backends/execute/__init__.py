"""Interpreter: executes MSCCL XML files and programs on NumPy data, for all ranks."""
