"""The public name of :mod:`lakelog_format.fields.hosts`."""

from lakelog_format.fields.hosts import *  # noqa: F403  # a list here could miss a name
