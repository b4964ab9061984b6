"""Services of an owner in processes of their own: what builds queues and index behind the log."""
