"""Simulated time of schedules and programs in the alpha-beta model with queues at resources."""
