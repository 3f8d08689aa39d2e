"""The name server: the topics and brokers of a cluster, as the brokers register them.

Routes live in memory only; the key-value configuration is the only file. Behaviour is that of
4.9.8, except that an unknown request is answered with code 3 instead of silence.
"""
