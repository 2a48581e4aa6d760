"""Series of trainings that one command runs or submits."""
