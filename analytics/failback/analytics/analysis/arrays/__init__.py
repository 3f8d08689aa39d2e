"""Arithmetic on numpy arrays: intervals, columns and joins, hashes. Pure.

Nothing here knows messages or groups.
"""
