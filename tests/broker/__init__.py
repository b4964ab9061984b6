"""Tests of unmodified RocketMQ clients with lakelog's broker and with RocketMQ's."""
