"""The maintenance of a store: deletes what a cleaner chooses, pauses puts as a watcher says."""
