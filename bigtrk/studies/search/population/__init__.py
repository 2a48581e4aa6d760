"""Population-based training on checkpoints."""
