"""``lakelog replication``: which slaves a store has, and slaves of RocketMQ that need a master."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lakelog.errors import NotAStore
from lakelog_cli.copylags import copy_lags
from lakelog_cli.copylines import lag_rows
from lakelog_cli.options import AsJson
from lakelog_cli.output import write_lines
from lakelog_cli.printed import prints
from lakelog_cli.tables import write_rows
from lakelog_replication import remoting
from lakelog_replication.address import Address
from lakelog_replication.rows import AdoptedRow, LagRow, SlaveStatusRow
from lakelog_replication.status import MasterStatus, read_status

app = typer.Typer(
    name="replication",
    help="Show the slaves of a store; give a master to a slave of RocketMQ.",
    no_args_is_help=True,
    add_completion=False,
)


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
@prints(SlaveStatusRow, LagRow)
def status(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")],
    as_json: AsJson = False,
) -> None:
    """List the slaves of a store, and the position of each; or the lags of a replica.

    Lags are in bytes, messages and seconds. A slave that is a learner by its own setting reports
    only its start: its own status has its lag.
    """
    if not store.is_dir():
        raise NotAStore("no store is here; is the path right?", path=store)
    found, lags = read_status(store), copy_lags(store)
    if found is None and lags is not None:
        write_rows(_replica_rows(lags), as_json=as_json)
        state = "" if lags["is_running"] else ", and has ended"
        typer.echo(f"lakelog: {store}: process {lags['pid']} {lags['says']}{state}", err=True)
        return
    write_rows([] if found is None else _rows(found, lags), as_json=as_json)
    for line in _about(store, found):
        typer.echo(f"lakelog: {line}", err=True)


@app.command()
@prints(AdoptedRow)
def adopt(
    broker: Annotated[
        Address,
        typer.Argument(
            metavar="BROKER", help="HOST:PORT of the slave: its listenPort.", parser=_address
        ),
    ],
    master: Annotated[
        Address,
        typer.Option(metavar="HOST:PORT", help="Address for slaves.", parser=_address),
    ],
    as_json: AsJson = False,
) -> None:
    """Let a slave of RocketMQ copy from a lakelog store; repeat it after each of its starts."""
    remoting.adopt(broker, master)
    if as_json:
        write_lines([{"broker": str(broker), "master": str(master)}])
    else:
        typer.echo(f"{broker} replicates from {master}")


def _replica_rows(lags: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"lag": name, **(lag or dict.fromkeys(("bytes", "messages", "seconds")))}
        for name, lag, _ in lag_rows(lags)
    ]


def _rows(found: MasterStatus, lags: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    behind = {each["address"]: each["lag"] or {} for each in (lags or {}).get("slaves", ())}
    return [
        {
            "slave": each.address,
            "acked": each.acked if each.acked >= 0 else None,
            "behind_bytes": found.end - each.acked if each.acked >= 0 else None,
            "behind_messages": behind.get(each.address, {}).get("messages"),
            "behind_seconds": behind.get(each.address, {}).get("seconds"),
            "sent": each.sent if each.acked >= 0 else None,
            "learner": each.learner,
            "connected_ms": each.since_ms,
        }
        for each in found.slaves
    ]


def _about(store: Path, found: MasterStatus | None) -> list[str]:
    if found is None:
        return [f"{store}: no process has replicated this store"]
    age_s = (time.time_ns() // 1_000_000 - found.time_ms) // 1000
    lives = Path("/proc", str(found.pid)).exists()
    sends = "sends" if lives else "sent, and has ended"
    head = (
        f"{store}: process {found.pid} {sends}, at {found.listening}; a put waits for "
        f"{found.in_sync_replicas} copies, this store included; last change {age_s} s ago"
    )
    return [head, *(f"refused {address}: {why}" for address, why in found.refused.items())]
