"""A canary: an own topic and two own groups on each pair, whose cost of a return is exact."""
