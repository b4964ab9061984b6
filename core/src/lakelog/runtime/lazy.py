"""The public name of :mod:`lakelog_format.lazy`."""

from lakelog_format.lazy import *  # noqa: F403  # a list here could miss a name
