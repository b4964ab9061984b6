"""Faults planted on purpose, to show that the tests find them: ``make mutants``."""
