"""The report of a search: its best trial, all trials, and what each setting did to the metric."""
