"""A canary: a topic and two groups of our own on each pair, whose cost of a return is exact."""
