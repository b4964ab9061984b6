"""The public name of :mod:`lakelog_format.fields.compression`."""

from lakelog_format.fields.compression import *  # noqa: F403  # the public name of all of it
