"""The RoleSwitch resource: its own status, beside the operation that switches."""
