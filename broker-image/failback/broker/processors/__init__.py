"""Request processors: each turns one kind of request into its answer, without touching sockets."""
