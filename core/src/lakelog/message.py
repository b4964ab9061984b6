"""The public name of :mod:`lakelog_format.message`."""

from lakelog_format.message import *  # noqa: F403  # a list here could miss a name
