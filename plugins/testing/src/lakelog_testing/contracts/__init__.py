"""A test suite for each kind of strategy; import them from :mod:`lakelog_testing`."""
