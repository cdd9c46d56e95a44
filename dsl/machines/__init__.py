"""Machines by name: graph families, described hosts, fabrics between hosts, failures."""
