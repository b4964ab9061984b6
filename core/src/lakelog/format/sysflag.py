"""The public name of :mod:`lakelog_format.fields.sysflag`."""

from lakelog_format.fields.sysflag import *  # noqa: F403  # a list here could miss a name
