"""``lakelog broker``: serve a store to RocketMQ's clients."""

from __future__ import annotations

import gc
import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from lakelog_broker.plugin import SECTION
from lakelog_cli import options, output
from lakelog_cli.commands.serve import served
from lakelog_daemon import follower, logs, notify
from lakelog_daemon.plan import ServePlan, landing

if TYPE_CHECKING:
    from lakelog_broker.embedded import EmbeddedBroker


class BrokerRow(TypedDict):
    """A broker that serves.

    :ivar namesrv: address of name server and broker
    :ivar endpoints: address for gRPC; null without it
    """

    namesrv: str
    endpoints: str | None
    store: str


@output.prints(BrokerRow)
def broker(  # noqa: PLR0913, PLR0917  # each is an option of the command
    store: options.StorePath,
    host: Annotated[
        str | None, typer.Option(help="Address to bind; routes give it to clients. [127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port of name server and broker; 0 for any free one. [9876]"
        ),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port for gRPC clients; 0 for any free one. [none]"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The broker's name. [broker-a]")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="The cluster's name. [DefaultCluster]")
    ] = None,
    queues: Annotated[
        int | None, typer.Option(min=1, help="Number of queues of topics that clients create. [8]")
    ] = None,
    no_auto_create: Annotated[
        bool, typer.Option("--no-auto-create", help="Refuse messages to unknown topics.")
    ] = False,
    to: options.LandTo = None,
    table: options.LandTable = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address, and the log of --to, as JSON.")
    ] = False,
    broker_conf: options.BrokerConf = None,
    settings: options.SettingsFile = None,
    assignments: options.Assignments = None,
) -> None:
    """Serve a store to RocketMQ's clients, as broker and name server, until SIGTERM or Ctrl-C.

    A missing store is made; a directory of RocketMQ is taken over. Options override the section
    [broker] of the settings. Other processes may write and read the store meanwhile; a store has
    one broker. A second signal ends the program at once, and the next open recovers.

    With --to, messages land in tables while clients send: as with lakelog serve and the followers
    broker and lake, in a process each.

    Exit codes: 0 stopped; 3 the store cannot be opened, has a broker, or the port is in use; 4 a
    write or sync failed, and a new start recovers the store; with --to those of lakelog serve.
    """
    given = {
        "host": host,
        "port": port,
        "grpc_port": grpc_port,
        "name": name,
        "cluster": cluster,
        "default_queues": queues,
        "auto_create_topics": False if no_auto_create else None,
    }
    arguments: dict[str, Any] = {
        f"{SECTION}.{key}": value for key, value in given.items() if value is not None
    }
    arguments |= landing(to, table)
    if to:
        arguments["followers"] = [SECTION, *arguments["followers"]]
    arguments |= dict(map(options.assignment, assignments or ()))
    plan = ServePlan.make(store, settings=settings, broker_conf=broker_conf, arguments=arguments)
    if to:
        raise typer.Exit(served(plan, logs.start_log("INFO", as_json=as_json)))
    opening = {"settings": settings, "broker_conf": broker_conf, **arguments}
    if plan.opening.settings.is_chosen("light_queues"):
        opening["light_queues"] = plan.opening.settings.core.light_queues
    _serve(plan, opening, as_json=as_json)


def _serve(plan: ServePlan, opening: dict[str, Any], *, as_json: bool) -> None:
    log = logs.start_log("WARNING")  # a full pipe must not stop it
    from lakelog_broker.embedded import BrokerFollower  # no other command needs it

    try:
        served_by = BrokerFollower(plan.path, plan.opening.settings.section(SECTION), **opening)
        served_by.on_start = partial(_announce, as_json)
        manager = notify.Notifier.of(os.environ)
        follower.follow(served_by, manager, follower.stopped_by_signals(once=True))
    finally:
        logs.stop_log(log)


def _announce(as_json: bool, running: EmbeddedBroker) -> None:
    """Print the addresses."""
    gc.collect()
    gc.freeze()  # modules and the parts of the broker last as long as the process
    endpoints = running.endpoints
    if as_json:
        row = BrokerRow(namesrv=running.namesrv, endpoints=endpoints, store=str(running.store.path))
        output.write_lines([row])
        return
    if endpoints:
        output.print_line(f"gRPC: {endpoints}")
    output.print_line(f"name server and broker: {running.namesrv}")
