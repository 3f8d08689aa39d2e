"""What a pass asks for, as values: actions, drift of children, and the encoding of a status.

Nothing here decides; the kinds' plans do.
"""
