"""Pull requests: the answer, the broker that is suggested for the next pull, and held pulls.

What a queue holds is read by ``store.reading``.
"""
