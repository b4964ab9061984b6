"""The public name of :mod:`lakelog_interfaces.strategies`."""

from typing import TYPE_CHECKING

from lakelog_interfaces.strategies import *  # noqa: F403  # the public name of all of it

if not TYPE_CHECKING:  # classes by their former names
    from lakelog_interfaces.strategies import __getattr__ as __getattr__
