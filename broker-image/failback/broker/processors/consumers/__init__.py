"""Requests of consumers but for pulls: heartbeats, offsets, queue locks, progress."""
