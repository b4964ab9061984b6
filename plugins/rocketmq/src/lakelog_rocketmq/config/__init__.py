"""RocketMQ's JSON files in ``config/``."""
