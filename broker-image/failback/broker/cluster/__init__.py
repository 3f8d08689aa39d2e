"""What a broker does with other members: registration, the slave's copies of tables, hand-back.

The transfer of the commit log is in ``ha``.
"""
