"""RocketMQ's remoting protocol: frames, connections, and one module per group of requests."""
