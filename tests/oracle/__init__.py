"""The real RocketMQ message store as a reference: small Java programs over its released jars."""
