"""The public name of :mod:`lakelog_format.status`."""

from lakelog_format.status import *  # noqa: F403  # a list here could miss a name
