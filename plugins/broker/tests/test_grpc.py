"""RocketMQ's Python client of the gRPC protocol against a broker in the same process."""
