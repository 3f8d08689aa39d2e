"""What a page shows, made from what was read. Pure."""
