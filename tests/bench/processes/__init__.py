"""Producers in several processes beside one owner, and what an owner costs that is idle."""
