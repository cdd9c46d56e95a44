"""The runtimes, one module each; emitted files contain the one they are for."""
