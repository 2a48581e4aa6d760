"""Settings of a process that computes: its freed memory, and threads beside it."""
