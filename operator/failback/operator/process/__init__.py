"""The operator's process: start, stop, health."""
