"""Consumers: messages are taken and acknowledged by one process or four; and one is killed."""
