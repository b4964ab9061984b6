"""Care for tables that messages have landed in: compared with the log, compacted, expired."""
