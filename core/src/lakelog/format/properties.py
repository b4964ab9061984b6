"""The public name of :mod:`lakelog_format.fields.properties`."""

from lakelog_format.fields.properties import *  # noqa: F403  # a list here could miss a name
