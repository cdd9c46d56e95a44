"""Messages with dependencies, as network simulators of others read them, in any file format."""
