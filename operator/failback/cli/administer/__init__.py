"""Commands that look after things: admin for brokers, doctor and its bundle for this machine."""
