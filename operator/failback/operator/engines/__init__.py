"""What is known of engine versions: configuration keys and how they change, and version quirks."""
