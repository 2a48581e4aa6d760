"""Series of trainings, run or submitted by one command."""
