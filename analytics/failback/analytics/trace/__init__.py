"""From the message-trace topic of unmodified Java clients to a run folder that can be reported on.

``records`` decodes bodies, ``pages`` keeps what was read on disk, ``reading`` asks the brokers,
``deliveries`` joins, ``placing`` finds queue and offset, ``run`` writes the folder and ``evidence``
says what a trace can't tell. ``ingest`` is the whole way; ``failback trace`` calls it.
"""
