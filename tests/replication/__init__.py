"""lakelog's replication beside real brokers of RocketMQ."""
