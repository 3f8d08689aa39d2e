"""One NameServer: what its pass decides, and the order in which it grows and shrinks."""
