"""Which cause a duplicate has. Pure."""
