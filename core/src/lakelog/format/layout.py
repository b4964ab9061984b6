"""The public name of :mod:`lakelog_format.fields.layout`."""

from lakelog_format.fields.layout import *  # noqa: F403  # the public name of all of it
