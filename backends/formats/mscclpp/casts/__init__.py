"""Plans of schedules in which switches sum and copy: acts, their order by signals, the plan."""
