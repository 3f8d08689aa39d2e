"""One BrokerCluster: what its pass decides, its conditions, warnings and status."""
