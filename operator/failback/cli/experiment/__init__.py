"""Commands that run experiments: demo, experiment, runs, faults."""
