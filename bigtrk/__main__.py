"""`python -m bigtrk`, for launchers that want a module: `torchrun ... -m bigtrk evaluate`."""

from bigtrk.cli import main

if __name__ == "__main__":
    main()
