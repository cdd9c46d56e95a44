"""Joint choice of routes and times: chunks are inserted into the gaps of a plan, repeatedly."""
