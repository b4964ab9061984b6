"""Messages of lakelog and RocketMQ stores land in lakehouse tables, each exactly once."""
