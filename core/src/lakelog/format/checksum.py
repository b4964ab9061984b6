"""The public name of :mod:`lakelog_format.fields.checksum`."""

from lakelog_format.fields.checksum import *  # noqa: F403  # the public name of all of it
