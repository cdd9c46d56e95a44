"""The compiler: schedules and algorithms to programs, by passes that are checked one by one."""
