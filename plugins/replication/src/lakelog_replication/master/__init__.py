"""The master: sends the log to slaves, and lets puts wait for their reports."""
