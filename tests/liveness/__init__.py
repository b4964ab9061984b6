"""Nothing hangs: random verbs of many threads, in every role, and in forked children."""
