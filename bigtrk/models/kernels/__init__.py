"""Passes over edges between matrix products, in the fastest form that a device has."""
