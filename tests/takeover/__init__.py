"""A store directory that lakelog and RocketMQ's broker serve in turns, with real Java clients."""
