"""``lakelog serve``: owns a store, supervises services beside it, and reports their status."""
