"""Send requests: single sends, batches, send-backs, replies, transactions, and their answers."""
