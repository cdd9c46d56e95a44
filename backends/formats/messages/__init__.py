"""Messages with dependencies: what simulators of networks by others read, in any file format."""
