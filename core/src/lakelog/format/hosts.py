"""The public name of :mod:`lakelog_format.fields.hosts`."""

from lakelog_format.fields.hosts import *  # noqa: F403  # the public name of all of it
