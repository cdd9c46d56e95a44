"""Automorphisms of topologies: colour refinement, detection, groups and orbits of ranks."""
