"""A store as one HTML page: its numbers, their charts, and the page around them."""
