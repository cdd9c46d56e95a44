"""Output of commands: console, progress, notices, exit codes, files written."""
