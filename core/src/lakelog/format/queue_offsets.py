"""The public name of :mod:`lakelog_format.fields.queue_offsets`."""

from lakelog_format.fields.queue_offsets import *  # noqa: F403  # a list here could miss a name
