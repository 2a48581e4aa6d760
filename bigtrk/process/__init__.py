"""Settings of a process that computes: freed memory, threads beside it, torch's warnings."""
