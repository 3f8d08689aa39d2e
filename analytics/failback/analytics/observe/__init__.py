"""``failback observe``: what returns of masters cost the groups of any RocketMQ cluster.

``asking`` looks at a cluster, ``looks`` and ``folder`` keep the looks. ``events``, ``members`` and
``returns`` conclude from them, ``redelivery`` has the rule. ``traced`` and ``canary`` make a count
exact, ``lake`` makes tables for a report. Brokers are only asked, but for the canary's topic.
"""
