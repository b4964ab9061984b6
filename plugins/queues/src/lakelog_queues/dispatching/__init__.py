"""The dispatcher ``consume-queue``: from records of the log to units of queues."""
