"""Request modes of groups outlive a restart, in RocketMQ's file."""

from __future__ import annotations

import json
from pathlib import Path

from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.codes import RequestCode
from lakelog_broker.embedded import EmbeddedBroker
from lakelog_broker.state.request_modes import RequestModes
from lakelog_replication.address import Address
from lakelog_replication.remoting import call


def mode_in(broker: EmbeddedBroker) -> str:
    """The mode in which a member of the group is told to consume."""
    asked = {"topic": "Orders", "consumerGroup": "readers", "clientId": "1"}
    body = json.dumps({**asked, "messageModel": "CLUSTERING", "strategyName": "AVG"}).encode()
    answer = call(Address.parse(broker.namesrv), RequestCode.QUERY_ASSIGNMENT, {}, body)
    [first, *_] = json.loads(answer.body)["messageQueueAssignments"] or [{"mode": "PULL"}]
    return str(first["mode"])


def test_a_group_pops_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("Orders")
        assert mode_in(broker) == "PULL"
        mode = {"topic": "Orders", "consumerGroup": "readers", "mode": "POP"}
        body = json.dumps({**mode, "popShareQueueNum": 3}).encode()
        call(Address.parse(broker.namesrv), RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body)
        assert mode_in(broker) == "POP"
    with EmbeddedBroker(tmp_path) as broker:
        assert mode_in(broker) == "POP"
    content = json.loads((tmp_path / "config" / "messageRequestMode.json").read_text())
    assert content == {
        "messageRequestModeMap": {"Orders": {"readers": {**mode, "popShareQueueNum": 3}}}
    }


def test_what_rocketmq_wrote_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "config" / "messageRequestMode.json"
    file.parent.mkdir()
    theirs = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2, "topic": "t"}
    file.write_text(json.dumps({"messageRequestModeMap": {"t": {"g": theirs}}, "more": 1}))
    modes = RequestModes(RealFileSystem(), tmp_path)
    assert (modes.of("t", "g"), modes.of("t", "h")) == ("POP", "PULL")
    modes.set("t", "h", "PULL", 0)
    content = json.loads(file.read_text())
    assert content["more"] == 1
    assert content["messageRequestModeMap"]["t"]["g"] == theirs
