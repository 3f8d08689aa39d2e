"""The documents behind pages and API, made of what the poller read. No I/O but in ``stories``."""
