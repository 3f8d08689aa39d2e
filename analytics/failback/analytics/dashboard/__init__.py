"""``failback dashboard``: clusters, offsets, runs and experiments as pages and as JSON.

One ``poller`` asks; ``views`` make documents of what it saw; ``http`` serves them. No page asks a
broker.
"""
