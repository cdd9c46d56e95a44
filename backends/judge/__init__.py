"""What checkers and executors of programs share: events and values."""
