"""Linear programs: exactly certified lower bounds and quotients by symmetry."""
