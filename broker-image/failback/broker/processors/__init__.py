"""Request processors: each turns one kind of request into its answer.

``compose`` builds them all. Nothing here touches a socket (``remoting`` does) or a file
(``store`` and ``metadata`` do).
"""
