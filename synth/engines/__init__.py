"""The engines: each finds schedules by one idea, named for it, and cites its paper."""
