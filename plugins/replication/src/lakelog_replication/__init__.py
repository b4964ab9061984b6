"""Replication of lakelog stores with RocketMQ's HA protocol, as master and as slave."""
