"""The RoleSwitch resource: its status and its end.

The switch itself is an operation of the cluster, in ``planning.operations.role_switch``.
"""
