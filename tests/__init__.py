"""Tests across packages, and what they share: fixtures, the real store, benchmarks."""
