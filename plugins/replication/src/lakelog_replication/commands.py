"""``lakelog replication``, ``replicate`` and ``promote``: slaves of a store, and replicas."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import typer

import lakelog
from lakelog.errors import LakelogError, NotAStore, SettingsError
from lakelog.files import filesystem, identity
from lakelog_cli import exitcodes, findings, options, output, statelines
from lakelog_daemon import daemon, logs
from lakelog_daemon.plan import ServePlan, landing
from lakelog_daemon.replication_status import MasterStatus, read_status
from lakelog_replication import remoting
from lakelog_replication.settings import Address

_LOG: Final = logging.getLogger("lakelog.serve")
_SECTION: Final = "rocketmq-ha"

app = typer.Typer(
    name="replication",
    help="Show the slaves of a store; give a master to a slave of RocketMQ.",
    no_args_is_help=True,
    add_completion=False,
)


class SlaveStatusRow(TypedDict):
    """A slave of a store.

    :ivar acked: largest reported offset; null without a report
    :ivar sent: offset up to which the log was sent
    :ivar connected_ms: time of the connect, in ms since 1970
    """

    slave: str
    acked: int | None
    behind_bytes: int | None
    behind_messages: int | None
    behind_seconds: float | None
    sent: int | None
    learner: bool
    connected_ms: int


class LagRow(TypedDict):
    """A lag of a replica; null where unknown.

    :ivar lag: name of the lag
    """

    lag: str
    bytes: int | None
    messages: int | None
    seconds: float | None


class AdoptedRow(TypedDict):
    """A slave and its present master."""

    broker: str
    master: str


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
@output.prints(SlaveStatusRow, LagRow)
def status(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")],
    as_json: options.AsJson = False,
) -> None:
    """List the slaves of a store, and the position of each; or the lags of a replica.

    Lags are in bytes, messages and seconds. A slave that is a learner by its own setting reports
    only its start: its own status has its lag.
    """
    if not store.is_dir():
        raise NotAStore("no store is here; is the path right?", path=store)
    found, lags = read_status(filesystem.RealFileSystem(), store), statelines.copy_lags(store)
    rows, about = list[dict[str, Any]](), ["no process has replicated this store"]
    if isinstance(found, MasterStatus):
        rows, about = _rows(found, lags), _about(found)
    elif lags is not None:
        unknown = dict.fromkeys(("bytes", "messages", "seconds"))
        rows = [{"lag": name, **(lag or unknown)} for name, lag, _ in statelines.lag_rows(lags)]
        state = "" if lags["is_running"] else ", and has ended"
        about = [f"process {lags['pid']} {lags['says']}{state}"]
    output.write_rows(rows, as_json=as_json)
    output.print_line(f"lakelog: {store}: {about[0]}", err=True)
    for line in about[1:]:
        output.print_line(f"lakelog: {line}", err=True)


@app.command()
@output.prints(AdoptedRow)
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
    as_json: options.AsJson = False,
) -> None:
    """Let a slave of RocketMQ copy from a lakelog store; repeat it after each of its starts."""
    remoting.adopt(broker, master)
    if as_json:
        output.write_lines([{"broker": str(broker), "master": str(master)}])
    else:
        output.print_line(f"{broker} replicates from {master}")


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


def _about(found: MasterStatus) -> list[str]:
    """One line on the master, then one for each refusal."""
    age_s = (time.time_ns() // 1_000_000 - found.time_ms) // 1000
    lives = Path("/proc", str(found.pid)).exists()
    sends = "sends" if lives else "sent, and has ended"
    head = (
        f"process {found.pid} {sends}, at {found.listening}; a put waits for "
        f"{found.in_sync_replicas} copies, this store included; last change {age_s} s ago"
    )
    return [head, *(f"refused {address}: {why}" for address, why in found.refused.items())]


def replicate(  # noqa: PLR0913, PLR0917  # each is an option of the command
    store: options.StorePath,
    masters: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="[NAME=]HOST:PORT",
            help="The master's haListenPort. With several or a NAME, STORE is a folder of stores.",
        ),
    ] = None,
    brokers: Annotated[
        list[str] | None,
        typer.Option(
            "--broker",
            metavar="HOST:PORT",
            help="The master's listenPort, for requests; one per --from, in order, or none.",
        ),
    ] = None,
    name_servers: Annotated[
        list[str] | None,
        typer.Option(
            "--from-name-server",
            metavar="HOST:PORT",
            help="Name server: all its masters are copied. Of several, the first to answer counts.",
        ),
    ] = None,
    vouch: Annotated[
        Literal["age", "flushed", "received"] | None,
        typer.Option(help="Bytes that may land: synced by the master, older than 12 s, or all."),
    ] = None,
    history: Annotated[
        Literal["all", "last"] | None,
        typer.Option(help="Start of a new replica in the master's log."),
    ] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count for inSyncReplicas of the master.")
    ] = False,
    to: options.LandTo = None,
    table: options.LandTable = None,
    cut_to: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET", help="Only cut the replica at this offset; the cut bytes are kept."
        ),
    ] = None,
    log_format: options.LogFormat = "text",
    settings: options.SettingsFile = None,
    assignments: options.Assignments = None,
) -> None:
    """Copy the logs of RocketMQ or lakelog masters into stores, until SIGTERM or Ctrl-C.

    Readers, queues and index of the store follow; no process can put into it. Copying stops if the
    master has lost messages that are in tables. If only the end that does not count as durable
    differs, that end is cut, kept in lakelog/quarantine, and received again. With several masters,
    each is copied by its own process, which is started again after a failure; tables identify the
    master by its name.

    Exit codes: 0 stopped; 3 the store or the master cannot be opened; 4 the logs differ, or a write
    failed; of several: 4 if a copy was not running at the stop, with its name.
    """
    if cut_to is not None:
        given = dict(map(options.assignment, assignments or ()))
        output.print_line(str(lakelog.cut_replica(store, cut_to, settings=settings, **given)))
        return
    arguments: dict[str, Any] = {"replicator": _SECTION, f"{_SECTION}.role": "slave"}
    given = sources(masters or [], brokers or [], name_servers or [])
    given |= {key: value for key, value in (("vouch", vouch), ("history", history)) if value}
    arguments |= {f"{_SECTION}.{key}": value for key, value in given.items()}
    if counts:
        arguments[f"{_SECTION}.learner"] = False
    arguments |= landing(to, table)
    arguments |= dict(map(options.assignment, assignments or ()))
    arguments = _with_segment_size(store, given.get("broker", ""), arguments)
    plan = ServePlan.make(store, settings=settings, arguments=arguments)
    raise typer.Exit(_served(plan, as_json=log_format == "json"))


def sources(
    masters: Sequence[str], brokers: Sequence[str], name_servers: Sequence[str]
) -> dict[str, Any]:
    """The settings of one master, or of several; raises :class:`~lakelog.errors.SettingsError`."""
    if brokers and len(brokers) != len(masters):
        raise SettingsError("give it once for each --from, or not at all", key="--broker")
    if len(masters) == 1 and "=" not in masters[0] and not name_servers:
        return {"master": masters[0]} | ({"broker": brokers[0]} if brokers else {})
    pairs = zip_longest(masters, brokers)
    listed = [f"{one},{broker}" if broker else one for one, broker in pairs]
    given = {"masters": listed, "name_servers": list(name_servers)}
    return {key: value for key, value in given.items() if value}


def _with_segment_size(store: Path, broker: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Add the master's segment size while the replica has no segment, if the master says it.

    A process that was killed while it made the replica may have left an empty folder or file.
    """
    key, segments = "segment_size_bytes", (store / "commitlog").glob("[0-9]*")
    if broker and key not in arguments and not any(each.stat().st_size for each in segments):
        try:
            size = remoting.broker_config(Address.parse(broker)).get("mappedFileSizeCommitLog", "")
        except (remoting.BrokerRefused, ValueError) as error:
            output.print_line(f"note: {error}", err=True)
            return arguments
        if size.isdigit():
            return {**arguments, key: int(size)}
    return arguments


def _served(plan: ServePlan, *, as_json: bool) -> int:
    """Serve; open the store again after a divergence that the opening mends."""
    log = logs.start_log("INFO", as_json=as_json)
    try:
        while (runner := daemon.runner_of(plan, log, exitcodes.LATE)).run() is daemon.Ending.FAILED:
            if not isinstance(runner, daemon.Daemon):
                return exitcodes.REFUSED
            state = identity.read_replica(filesystem.RealFileSystem.of_store(plan.path), plan.path)
            if state is None or state.cut is None:
                return exitcodes.REFUSED
            _LOG.warning("opens the replica again, and cuts it at %d", state.cut)
    except LakelogError as error:
        _LOG.critical("%s", error, extra=logs.fields("not_served"))
        return exitcodes.of(error)
    finally:
        logs.stop_log(log)
    return exitcodes.OK


@output.prints(findings.RecoveryDocument)
def promote(
    store: options.StorePath,
    as_json: options.AsJson = False,
    settings: options.SettingsFile = None,
    assignments: options.Assignments = None,
) -> None:
    """Make a replica an independent store, which accepts puts.

    Stop `lakelog replicate` before, and make sure that the master does not start again.
    """
    given = dict(map(options.assignment, assignments or ()))
    report = lakelog.promote(store, settings=settings, **given)
    if as_json:
        output.write_lines([findings.recovery_row(report)])
    else:
        output.print_line(str(report))
