"""Names of the files in the folder of a sweep."""

MANIFEST, JOURNAL, SCHEDULES = "sweep.json", "journal.jsonl", "schedules"
