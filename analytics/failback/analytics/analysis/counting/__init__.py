"""Normalising rows, and counting per queue and group. Pure.

``families`` declares what is counted. Nothing here asks for causes.
"""
