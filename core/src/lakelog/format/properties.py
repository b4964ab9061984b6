"""The public name of :mod:`lakelog_format.fields.properties`."""

from lakelog_format.fields.properties import *  # noqa: F403  # the public name of all of it
