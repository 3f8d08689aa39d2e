"""One BrokerCluster: the plan of its pass, its conditions, warnings and status.

The running operation of a cluster is in ``planning.operations``.
"""
