"""Measures lakelog beside its peers in the same run: `python -m tests.bench --help`.

Figures of different runs or machines are not to be compared; ratios within a run are.
"""
