"""One live view of a pair, for exporter, dashboard and ``explain-offset``: facts, then figures."""
