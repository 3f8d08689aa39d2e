"""What a broker exchanges with name servers and with the other members of its pair: metadata.

Registration, the slave's copies of its master's tables, and the hand-back of offsets are here. The
commit log is copied in ``ha``.
"""
