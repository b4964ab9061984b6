"""Reads the settings files of Apache RocketMQ."""
