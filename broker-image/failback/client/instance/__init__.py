"""One client instance: its connections, route table, heartbeats, timers and identity.

Producers and consumers of one process share an instance; none of their rules lives here.
"""
