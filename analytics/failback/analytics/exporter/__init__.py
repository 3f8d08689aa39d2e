"""``failback exporter``: metrics of RocketMQ clusters, asked by the admin protocol alone.

``survey`` asks, ``pair_history`` remembers, ``figures`` makes metric families, ``server`` answers
scrapes. No broker is changed.
"""
