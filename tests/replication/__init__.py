"""Replication with real brokers of RocketMQ 5.3.3."""
