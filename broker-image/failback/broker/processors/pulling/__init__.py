"""Pull requests: the answer, where a slave is suggested, and pulls that are held."""
