"""Units of queues: 20 bytes each, batches, tags codes, and the topics that choose the kind."""
