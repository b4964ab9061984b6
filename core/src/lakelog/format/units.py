"""The public name of :mod:`lakelog_format.fields.units`."""

from lakelog_format.fields.units import *  # noqa: F403  # a list here could miss a name
