"""Producers in several processes beside one owner, and the cost of an idle owner."""
