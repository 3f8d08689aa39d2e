"""Connections to brokers and name servers, and the calls over them.

Nothing here knows what a producer or a consumer does.
"""
