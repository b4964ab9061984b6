"""The public name of :mod:`lakelog_format.pieces`."""

from lakelog_format.pieces import *  # noqa: F403  # the public name of all of it
