"""Connections to brokers and name servers, the typed calls over them, and all client settings.

Nothing here knows what a producer or a consumer does.
"""
