"""Small mapped files by which an owner and other processes tell each other how far things are."""
