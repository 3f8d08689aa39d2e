"""Connected producers and consumers, and the requests that the broker sends to them.

Requests that clients send are answered in ``processors``; silent ones go in
``processors.consumers.heartbeats``.
"""
