"""One NameServer: what its pass decides."""
