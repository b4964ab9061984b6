"""The public name of :mod:`lakelog_interfaces.strategies`."""

from typing import TYPE_CHECKING

from lakelog_interfaces.strategies import *  # noqa: F403  # a list here could miss a name

if not TYPE_CHECKING:  # classes by their former names
    from lakelog_interfaces.strategies import __getattr__ as __getattr__
