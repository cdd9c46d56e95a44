"""Allreduces by calls of a communication library on parts of the ranks."""
