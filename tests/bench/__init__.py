"""Measures lakelog and other stores in the same run: `python -m tests.bench --help`.

Only ratios within a run can be compared, not figures of different runs or machines.
"""
