"""Questions to brokers and name servers: the newest answers, backlogs, remembered routes, figures.

What follows from an answer is decided in ``planning``.
"""
