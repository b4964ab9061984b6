"""The public name of :mod:`lakelog_format.codec.decode`."""

from lakelog_format.codec.decode import *  # noqa: F403  # a list here could miss a name
