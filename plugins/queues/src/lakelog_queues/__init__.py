"""Consume queues of RocketMQ's message store, and the methods that find messages by them."""
