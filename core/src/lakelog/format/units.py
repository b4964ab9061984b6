"""The public name of :mod:`lakelog_format.fields.units`."""

from lakelog_format.fields.units import *  # noqa: F403  # the public name of all of it
