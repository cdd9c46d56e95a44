"""Lower bound on the rounds per chunk of schedules of S steps: demands, distances, a flow LP."""
