"""Figures per group and queue, from result tables. Pure.

Integers go in; ratios are formed at the very end.
"""
