"""Maintenance of tables: compaction, expiry, and removal or repetition of landed rows."""
