"""The verifier of schedules: replay on contribution sets, sketch rules, pruning of idle copies."""
