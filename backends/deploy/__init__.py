"""Taking a library to a cluster: settings of runtimes, lines of launchers, proof that it ran."""
