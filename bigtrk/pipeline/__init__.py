"""The stages from hits to tracks, each a command of its own."""
