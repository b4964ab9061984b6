"""The public name of :mod:`lakelog_format.fields.checksum`."""

from lakelog_format.fields.checksum import *  # noqa: F403  # a list here could miss a name
