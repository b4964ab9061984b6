"""What a producer offers: encoded records with all that the owner needs to place them."""

from __future__ import annotations

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.offer import Offer
from lakelog.ring.layout import Shape, encode_topics, shape_of

__all__ = ["Offer", "needed_bytes", "offer_of", "shape_for"]


def offer_of(batch: EncodedBatch) -> Offer:
    """The offer of a batch, which must not be placed any more."""
    return batch.offer()


def needed_bytes(offer: Offer, intents: int = 0) -> int:
    """How much of a ring an offer takes; an entry can take half of its capacity."""
    return shape_for(offer, encode_topics(offer.topics), intents).total


def shape_for(offer: Offer, table: bytes, intents: int) -> Shape:
    """Where the parts of its entry stand."""
    topics = len(offer.topics)
    return shape_of(offer.count, len(offer.records), topics, len(table), intents)
