"""Pop consumption: a message is invisible for a time, and handed out again if not acknowledged."""
