"""Frame of the command line: parser, entry, start, defaults, completion."""
