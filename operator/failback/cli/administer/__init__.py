"""Commands that look after things: admin for brokers, doctor for this machine."""
