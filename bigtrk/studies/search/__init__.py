"""Searches for settings: many trainings, of which most end early."""
