"""Messages that wait for their time, in RocketMQ's topics and files, and their delivery."""
