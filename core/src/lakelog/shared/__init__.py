"""What the processes of one store share: locks on bytes, and words in mapped files."""
