"""What a pass has seen of the world, as values."""
