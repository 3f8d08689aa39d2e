"""What is written down during a run: faults, samples, and the steps that prove a fault."""
