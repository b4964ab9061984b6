"""A single Kafka broker on this machine: its jars, its start and stop, and producer processes."""
