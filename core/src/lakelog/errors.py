"""The public name of :mod:`lakelog_interfaces.errors`."""

from lakelog_interfaces.errors import *  # noqa: F403  # a list here could miss a name
