"""What the dashboard reads: clusters, runs, a collector."""
