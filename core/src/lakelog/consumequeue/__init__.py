"""Consume queues: which records stand in which queue, as files of fixed-size units."""
