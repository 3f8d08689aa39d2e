"""The wire of RocketMQ 4.9: frames, commands, headers, messages and JSON bodies. Pure.

Nothing here opens a socket, reads a clock or logs; broker, name server, client and the
tools share it. Reference: Apache RocketMQ 4.9.8.
"""
