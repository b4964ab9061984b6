"""The command line over stores that the real RocketMQ store wrote."""
