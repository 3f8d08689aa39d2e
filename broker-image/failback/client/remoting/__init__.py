"""Connections to brokers and name servers, the calls over them, and all client settings.

The small HTTP server of health ports is here too. Nothing here knows what a producer or a consumer
does.
"""
