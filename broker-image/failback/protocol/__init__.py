"""The wire of RocketMQ 4.9: frames, commands, headers, messages, JSON bodies, calls. Pure.

Nothing here opens a socket, reads a clock or logs. Reference: Apache RocketMQ 4.9.8.
"""
