"""Connected producers and consumers, and the requests that the broker sends to them.

Requests that clients send are answered in ``processors``.
"""
