"""The public name of :mod:`lakelog_interfaces.accelerate`."""

from lakelog_interfaces.accelerate import *  # noqa: F403  # a list here could miss a name
