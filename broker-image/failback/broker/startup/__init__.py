"""Builds a broker of its parts, runs them, and stops them in order.

This package imports all others; only ``__main__`` imports it.
"""
