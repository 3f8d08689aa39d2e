"""Topics and groups: what is to be done on which master."""
