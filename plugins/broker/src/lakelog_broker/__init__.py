"""A RocketMQ broker and name server over a lakelog store, for clients of every language."""
