"""Commands for a cluster of local processes: up, down, ps, logs."""
