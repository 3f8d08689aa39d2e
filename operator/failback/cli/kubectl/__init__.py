"""The kubectl plugin: what `kubectl failback` shows of our resources, and the orders it gives."""
