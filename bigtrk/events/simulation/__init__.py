"""Simulated events: particles, their way through the detector, and what it reads out."""
