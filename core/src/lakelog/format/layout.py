"""The public name of :mod:`lakelog_format.fields.layout`."""

from lakelog_format.fields.layout import *  # noqa: F403  # a list here could miss a name
