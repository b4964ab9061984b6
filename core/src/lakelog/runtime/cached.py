"""The public name of :mod:`lakelog_format.cached`."""

from lakelog_format.cached import *  # noqa: F403  # a list here could miss a name
