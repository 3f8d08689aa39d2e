"""What to do next for every kind: pure functions from what is observed to actions and a status."""
