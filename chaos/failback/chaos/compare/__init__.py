"""The same question asked of Kafka and of Redis Streams: their clusters, clients and kills.

What follows a run is what all runs have. Clients of RocketMQ and faults on its brokers do not live
here.
"""
