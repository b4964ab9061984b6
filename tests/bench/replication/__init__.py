"""What copies of several masters cost."""
