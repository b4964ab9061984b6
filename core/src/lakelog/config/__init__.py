"""RocketMQ's JSON files in ``config/``: read leniently, written strictly and atomically."""
