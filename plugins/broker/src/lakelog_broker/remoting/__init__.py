"""RocketMQ's remoting protocol: frames, connections, and one module per family of requests."""
