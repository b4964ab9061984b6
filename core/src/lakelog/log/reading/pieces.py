"""The public name of :mod:`lakelog_format.pieces`."""

from lakelog_format.pieces import *  # noqa: F403  # a list here could miss a name
