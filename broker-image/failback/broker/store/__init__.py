"""The message store of one broker, on RocketMQ 4.9's disk format. Entry: ``message_store``."""
