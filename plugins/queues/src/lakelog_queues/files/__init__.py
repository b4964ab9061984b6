"""Files of consume queues, queues of batches, and tags codes that are kept apart."""
