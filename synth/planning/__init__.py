"""Schedules for a whole workload, from the joint solution and today's engines."""
