"""Commands that ask and order brokers and name servers: admin."""
