"""Transactions with their checks, and recalls of timer messages.

All state is in RocketMQ's system topics and files. So a RocketMQ broker can continue in a directory
that this broker has served, and this broker in a directory of RocketMQ. Delayed messages are
delivered by the store itself, see :mod:`lakelog_queues.delays`.
"""
