"""Scheduled work: delay levels, timer messages, and transactions with their checks.

All state is in RocketMQ's system topics and files. So a RocketMQ broker can continue in a directory
that this broker has served, and this broker in a directory of RocketMQ. Each part delivers at least
once: its progress is saved every few seconds, and only after the messages that it covers are
durable.
"""
