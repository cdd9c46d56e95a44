"""Machines by name: families of graphs, described boxes, and the fabric that joins boxes."""
