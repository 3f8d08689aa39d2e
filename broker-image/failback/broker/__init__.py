"""The broker: one asyncio process that stores, replicates and serves messages as 4.9.8 does.

``startup.controller`` puts the parts together; ``processors`` answer requests. Nothing here
knows the operator, the harness or the analytics.
"""
