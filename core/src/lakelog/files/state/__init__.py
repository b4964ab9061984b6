"""A store's small files beside its log, each read and replaced as a whole."""
