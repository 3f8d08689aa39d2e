"""Each fault: what it does, how it is proved, and how it is undone."""
