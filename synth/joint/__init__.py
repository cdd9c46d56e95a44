"""Theory and schedules of several collectives at once: least times, proofs, and routes."""
