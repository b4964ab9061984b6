"""Settings: many sources in, one frozen, explained set of values out.

Sources, the strongest first: arguments, the environment, a file that was given (TOML, then
RocketMQ's ``broker.conf``), ``lakelog/lakelog.toml`` of the store directory, ``[tool.lakelog]`` of
the host application's ``pyproject.toml``, a resource in the host's package, what the files of the
store tell, defaults. :func:`lakelog.settings.resolver.resolve` brings them together.

This file imports nothing, so that the model alone is cheap to import.
"""
