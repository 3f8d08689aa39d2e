"""What a pass asks for, as values, and how it is written down."""
