"""Messages that are handed out, stay invisible for a time, and come again unless acknowledged."""
