"""`python -m partition` is `bigtrk-partition`."""

from partition.cli import main

if __name__ == "__main__":
    main()
