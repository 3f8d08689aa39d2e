"""The API server: requests, leases, events, the store of observed objects, the chart's hooks.

Nothing here knows what a broker is.
"""
