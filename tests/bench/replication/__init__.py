"""Replication by RocketMQ's HA protocol: real brokers and lakelog, in both roles."""
