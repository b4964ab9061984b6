"""Compares the durability of stores under kills, power cuts, failing syncs, full disks and damage.

``python -m tests.bench.comparison`` injects the same faults into lakelog, RocketMQ's Java store,
SQLite, LMDB and RocksDB, and writes ``core/docs/comparison.md``. For each store one process puts
numbered messages and prints the result of each put; another process reads them afterwards.
"""
