"""What containers run and people do not: hidden from the help."""
