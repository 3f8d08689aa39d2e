"""Reading messages by queue and offset, with and without a filter."""
