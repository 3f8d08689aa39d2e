"""``failback exporter``: metrics of RocketMQ clusters that are asked by the admin protocol alone.

    survey     asks name servers and brokers, once per period; a value, no state
    history    what only several surveys together tell: rates, ages, what went back
    figures    metric families from both; pure
    runs       run folders: which runs go on, which faults are open, what reports found
    server     the loop and the HTTP port

Names are those that our own brokers export, and beside them those of rocketmq-exporter that
dashboards know. Nothing is written anywhere and no broker is changed.
"""
