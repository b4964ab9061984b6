"""The public name of :mod:`lakelog_format.fields.message_id`."""

from lakelog_format.fields.message_id import *  # noqa: F403  # the public name of all of it
