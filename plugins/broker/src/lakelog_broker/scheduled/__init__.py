"""Work at a later time: delay levels, timer messages, and transactions with their checks.

All is kept in RocketMQ's system topics and files, so that its broker continues with a directory
that this one has served, and the other way round. Each part delivers at least once: its progress is
saved every few seconds, and never before the log is durable to which it refers.
"""
