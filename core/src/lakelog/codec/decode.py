"""The public name of :mod:`lakelog_format.codec.decode`."""

from lakelog_format.codec.decode import *  # noqa: F403  # the public name of all of it
