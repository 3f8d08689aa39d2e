"""What consumer groups have committed, kept by the broker."""
