"""The public name of :mod:`lakelog_format.results`."""

from lakelog_format.results import *  # noqa: F403  # the public name of all of it
