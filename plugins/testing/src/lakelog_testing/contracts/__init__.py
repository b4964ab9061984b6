"""One suite of tests per kind of strategy; import them from :mod:`lakelog_testing`."""
