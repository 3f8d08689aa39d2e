"""What all packages share below the wire: files, and text, numbers and times for people.

Standard library only, because `failback.init` imports it.
"""
