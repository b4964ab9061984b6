"""The public name of :mod:`lakelog_format.fields.compression`."""

from lakelog_format.fields.compression import *  # noqa: F403  # a list here could miss a name
