"""The steps of the RoleSwitch operation, the checks before it, and its offset snapshot.

Their order is in ``planning.operations.role_switch``.
"""
