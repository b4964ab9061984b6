"""RocketMQ's formats: names and layouts of files, fields of records, checksums; no I/O."""
