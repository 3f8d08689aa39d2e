"""Words for people: pages of help, and names that were once spelt otherwise. Pure."""
