"""bigtrk trains track-finding graph networks on event graphs too large for one device."""

__version__ = "0.1.0"
