"""The public name of :mod:`lakelog_format.fields.message_id`."""

from lakelog_format.fields.message_id import *  # noqa: F403  # a list here could miss a name
