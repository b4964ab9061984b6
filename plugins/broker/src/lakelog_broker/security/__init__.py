"""Access control: users, their permissions, and the signatures of requests."""
