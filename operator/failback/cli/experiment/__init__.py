"""Commands that run experiments: demo, run."""
