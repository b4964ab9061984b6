"""Unmodified clients against lakelog's broker and RocketMQ's."""
