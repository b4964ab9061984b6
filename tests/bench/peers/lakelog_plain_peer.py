"""lakelog again, without compiled code."""

from __future__ import annotations

from tests.bench.peers import lakelog_peer

SETTINGS = "as lakelog, with accelerator=none"


class Peer(lakelog_peer.Peer):
    accelerator = "none"
