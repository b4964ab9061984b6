"""The small files of a store beside its log: each read and replaced as a whole."""
