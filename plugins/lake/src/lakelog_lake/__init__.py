"""Writes the messages of lakelog and RocketMQ stores to lakehouse tables, each exactly once."""
