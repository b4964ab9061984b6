"""The public name of :mod:`lakelog_interfaces.errors`."""

from lakelog_interfaces.errors import *  # noqa: F403  # the public name of all of it
