"""Request processors: each turns one kind of request into its answer.

A method is marked with its request code (``registry``); ``compose`` builds the processors. Nothing
here touches a socket (``remoting`` does) or a file (``store`` and ``metadata`` do).
"""
