"""Messages by queue, tag, time and key."""
