"""Chakra execution traces: collective algorithms for ASTRA-sim."""
