"""``lakelog serve``: the process that owns a store, what it runs beside it, and what it says."""
