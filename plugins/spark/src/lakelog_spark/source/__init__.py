"""The data source ``lakelog``, batch and streaming."""
