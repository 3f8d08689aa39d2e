"""What keeps a store sound: opening, recovery, flushing, expiry."""
