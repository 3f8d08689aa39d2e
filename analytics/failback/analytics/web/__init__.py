"""What the collector and the dashboard share as web servers: tokens, problem documents, serving."""
