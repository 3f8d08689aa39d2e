"""Asking brokers and name servers: their answers, the routes they told, their figures.

What follows from an answer is decided in ``planning``.
"""
