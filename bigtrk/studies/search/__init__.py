"""Searches for good settings by many trainings, most of which end early."""
