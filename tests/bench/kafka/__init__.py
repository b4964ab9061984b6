"""A single Kafka broker of this machine: its jars, its life, and processes that produce to it."""
