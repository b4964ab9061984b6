"""Tests of lakelog's replication with real brokers of RocketMQ."""
