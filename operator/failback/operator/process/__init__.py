"""The operator's process: its start, its graceful stop, its health endpoints."""
