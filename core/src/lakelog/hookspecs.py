"""The public name of :mod:`lakelog_interfaces.hookspecs`."""

from lakelog_interfaces.hookspecs import *  # noqa: F403  # a list here could miss a name
