"""Packings of trees whose switches copy and sum, as schedules with casts."""
