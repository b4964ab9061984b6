"""Merges the settings of many sources into one frozen set of values, each with its origin.

Sources, strongest first: arguments, the environment, a given file (TOML, then RocketMQ's
``broker.conf``), ``lakelog/lakelog.toml`` of the store directory, ``[tool.lakelog]`` of the
application's ``pyproject.toml``, a resource in the application's package, the store's files,
defaults. :func:`lakelog.settings.resolver.resolve` merges them.

This file imports nothing, so that importing the model alone is cheap.
"""
