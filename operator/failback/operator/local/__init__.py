"""The local runtime: rendered objects as processes on loopback addresses."""
