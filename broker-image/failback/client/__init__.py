"""The asyncio client: producer, push consumer, admin calls and the consume-log hook."""
