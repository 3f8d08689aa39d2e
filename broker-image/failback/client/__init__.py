"""The asyncio client: producer, push consumer, admin client, consume log.

Every server and tool of this distribution may import it; it knows none of them.
"""
