"""Arithmetic on numpy arrays: intervals, columns and joins, thinning, hashes. Pure.

Nothing here knows messages or groups.
"""
