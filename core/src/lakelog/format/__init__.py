"""The public names of :mod:`lakelog_format.fields`."""
