"""The public name of :mod:`lakelog_interfaces.accelerate`."""

from lakelog_interfaces.accelerate import *  # noqa: F403  # the public name of all of it
