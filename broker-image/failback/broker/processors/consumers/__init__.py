"""Requests of consumers other than pulls: heartbeats, offsets, queue locks, progress.

The tables behind them are in ``clients`` and ``metadata``.
"""
