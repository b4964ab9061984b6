"""RocketMQ's records: encodes messages to their bytes and decodes these; no files, no store."""
