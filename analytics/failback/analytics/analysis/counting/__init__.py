"""Normalising rows, and counting per queue and group. Pure.

Nothing here asks for causes.
"""
