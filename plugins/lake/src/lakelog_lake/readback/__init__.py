"""Tables that messages have landed in, read again."""
