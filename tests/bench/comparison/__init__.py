"""What stores keep when they are killed, cut off, refused by the disk or damaged: one command.

``python -m tests.bench.comparison`` does the same to lakelog, to RocketMQ's Java store, SQLite,
LMDB and RocksDB, and writes ``core/docs/comparison.md``. Each store has one process that puts
numbered messages and tells each answer, and another one that reads them afterwards.
"""
