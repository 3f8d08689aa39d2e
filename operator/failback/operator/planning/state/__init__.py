"""The present state of a cluster, read from its status and its members."""
