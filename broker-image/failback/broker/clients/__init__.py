"""Connected producers and consumers, and what the broker asks them.

Requests that clients send are answered in ``processors``.
"""
