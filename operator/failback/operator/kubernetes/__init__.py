"""The API server: requests, the Lease, events, the store of watched objects, the chart's hooks.

Nothing here knows what a broker is.
"""
