"""The name server: where every topic and broker is, as the brokers themselves report it.

Routes live in memory only and are rebuilt from registrations; only the key-value
configuration is kept on disk. Behaviour of apache/rocketmq 4.9.8, except that an unknown
request is answered with code 3 instead of silence.
"""
