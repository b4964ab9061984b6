"""RocketMQ's records as bytes and as columns; no files, and no store."""
