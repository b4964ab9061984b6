"""Writes rows into a store: staged by tasks, appended by the driver, exactly once."""
