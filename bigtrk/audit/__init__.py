"""Gradients of a run's mini-batches beside the exact gradient: `bigtrk audit`."""
