"""Order of operations in time, its bounds, and the shifts of jobs."""
