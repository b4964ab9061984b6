"""The public name of :mod:`lakelog_format.results`."""

from lakelog_format.results import *  # noqa: F403  # a list here could miss a name
