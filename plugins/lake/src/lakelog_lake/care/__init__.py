"""Care for tables that messages have landed in: compaction and expiry."""
