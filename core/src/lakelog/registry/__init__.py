"""Collects what plugins offer, refuses what cannot work, and picks strategies by name.

:mod:`~lakelog.registry.sources` says where plugins come from, ``plugged`` registers them,
``hookcheck`` and ``factorycheck`` refuse mistakes that pluggy would let pass, ``collect`` gathers
the factories, ``conformance`` checks the objects that they make, and ``events`` tells of lifecycle
events. All of it happens at open, before any file is touched; nothing here is called per message.
"""

from lakelog.registry.conformance import check_object
from lakelog.registry.events import Events, Veto
from lakelog.registry.offers import Offer, PluginRow, Setting
from lakelog.registry.registry import Registry

__all__ = ["Events", "Offer", "PluginRow", "Registry", "Setting", "Veto", "check_object"]
