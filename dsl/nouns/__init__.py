"""Nouns, frozen values with a JSON form: topology, collective, sketch, schedule, program."""
