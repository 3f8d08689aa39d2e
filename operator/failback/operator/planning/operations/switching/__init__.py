"""The parts of a RoleSwitch: what is asked, what is seen of the pair, one function per step."""
