"""``weft serve``: a process that has loaded weft and forks once for each command line it gets."""
