"""When operations run: their order in time, its bounds, and the shifts of jobs."""
