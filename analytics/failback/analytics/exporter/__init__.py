"""``failback exporter``: metrics of RocketMQ clusters, asked by the admin protocol alone.

``survey`` asks, ``history`` remembers, ``figures`` makes metric families, ``server`` answers
scrapes. No broker is changed.
"""
