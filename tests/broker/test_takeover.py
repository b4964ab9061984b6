"""A directory of a real broker, served by lakelog's."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.embedded import EmbeddedBroker
from lakelog_queues.configs import topics_of
from plugins.broker.tests.raw_client import send

REAL: Final = Path(__file__).parents[1] / "data" / "fixtures" / "real_broker.tar.xz"


def test_messages_and_topics_of_a_real_broker_are_served(tmp_path: Path) -> None:
    with tarfile.open(REAL) as archive:
        archive.extractall(tmp_path, filter="data")
    path = tmp_path / "real_broker" / "store"
    topics = topics_of(RealFileSystem(), path)
    with lakelog.open(path, mode="read") as store:
        before = {
            topic: sorted(
                bytes(each.body)
                for queue in store.queues(topic)
                for each in store.read(topic, queue.queue_id)
            )
            for topic in store.topics()
        }
        system = ("%", "rmq_sys", "RMQ_SYS", "SCHEDULE_TOPIC")
        [topic, *_] = [each for each in before.keys() & topics if not each.startswith(system)]
    with EmbeddedBroker(path) as broker:
        for each, bodies in before.items():
            assert sorted(bytes(message.body) for message in broker.messages(each)) == bodies
        assert set(topics) <= {each.topic for each in broker.broker.topics}
        send(broker.namesrv, topic, b"by a client of lakelog")
        assert bytes(broker.messages(topic)[-1].body) == b"by a client of lakelog"
