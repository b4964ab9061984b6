"""Rows back into a store: staged by tasks, handed over by the driver, exactly once."""
