"""Runtime models fitted to measured times of collectives."""
