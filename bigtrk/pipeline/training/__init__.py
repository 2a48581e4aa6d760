"""The training of a pipeline: its settings, each stage in order, and the merge tree last."""
