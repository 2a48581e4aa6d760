"""Mini-batches: ShaDow subgraphs of an event, sampled in bulk."""
