"""The public name of :mod:`lakelog_interfaces.strategies`."""

from lakelog_interfaces.strategies import __getattr__ as __getattr__
from lakelog_interfaces.strategies import *  # noqa: F403  # the public name of all of it
