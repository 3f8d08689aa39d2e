"""The operator beside the API server: its Lease, events, watched objects, the chart's hooks.

Requests are sent by ``failback.kube``. Nothing here knows what a broker is.
"""
