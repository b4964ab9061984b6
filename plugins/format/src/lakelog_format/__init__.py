"""RocketMQ's records: encodes messages to records, and decodes them; no files, no store."""
