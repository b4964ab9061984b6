"""Copies several masters into a folder, each by a program of its own, until a stop is requested.

The programs, ``lakelog replicate`` with the settings of the folder, are supervised like services of
a store. A program that ends, for any reason, is restarted after growing pauses, and the others
continue. Masters come from the settings, from name servers, and from the file that stores the
masters found by name servers. A master that is no longer listed is kept.

That file, ``lakelog/masters.json``, is ``{"version": 1, "masters": {NAME: ADDRESSES}}`` with the
addresses as :meth:`SourceMaster.parse` reads them. Through it, a master that a name server no
longer lists is still copied after a restart, as long as the folder of its copy exists.

Request 106 of a name server lists brokers by name, with the address of each by broker id; a master
has id 0. The address for slaves is not in the list. A second request, for the master's settings
(26), returns it as ``brokerIP2`` and ``haListenPort`` (RocketMQ 5.3.3,
``BrokerController.getHAServerAddr``).

The status of the folder is in its ``lakelog/serve.json``. The fields are those of
:mod:`lakelog_daemon.status` that do not concern a single store, and::

    masters        {name: {"slaves": HOST:PORT, "broker": HOST:PORT or null, "listed": whether a
                   name server lists it now}}
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.errors import SettingsError, StoreError
from lakelog.files.filesystem import FileSystem, RealFileSystem, read_file
from lakelog.files.identity import write_own
from lakelog.format.layout import COMMITLOG_DIR, OWN_DIR
from lakelog.runtime.threads import started
from lakelog_daemon import daemon, file_lock, logs, notify, processes, service, status
from lakelog_daemon.arguments import lakelog
from lakelog_daemon.plan import ServePlan, Spec
from lakelog_replication.remoting import GET_BROKER_CLUSTER_INFO, BrokerRefused, broker_config, call
from lakelog_replication.settings import Address, SourceMaster
from lakelog_rocketmq.fastjson import parse_object

if TYPE_CHECKING:
    from lakelog_replication.settings import SlaveSettings

_LOG: Final = logging.getLogger("lakelog.serve")
_MASTER_ID: Final = "0"
MASTERS_FILE: Final = "masters.json"
_VERSION: Final = 1
_STOP: Final = (signal.SIGTERM, signal.SIGINT)
_LOCK_FILE: Final = "masters.lock"
_MORE_SECONDS: Final = 5.0
"""Time that a stop may take beyond the stop timeout of each copy."""
_SECTION: Final = "rocketmq-ha"
_STORE_ID: Final = "--store-id"
_COMMIT_LOCK: Final = "--commit-lock"
_ENGINES: Final = {"--engine", "--processes", "--master", "--conf"}
_ONE_PROCESS: Final = ("--engine", "processes", "--processes", "1")
"""The default for landing: a Spark session or a process pool per master would fill the memory."""
_REPLACED: Final = {
    *(f"{_SECTION}.{key}" for key in ("role", "master", "broker", "masters", "name_servers")),
    *("serve.services", "lake.options"),
}
"""Settings of the folder that a copy does not take over."""


class MultiSourceDaemon:
    """Serves a folder of copies; a :class:`~lakelog_daemon.daemon.Runner`."""

    def __init__(
        self, plan: ServePlan, settings: SlaveSettings, log: logs.LogWriter, late_code: int
    ) -> None:
        """Check the settings; open nothing yet.

        :param late_code: exit code of a stop that exceeds its timeout

        Raises :class:`~lakelog.errors.SettingsError`.
        """
        self._plan = plan
        self._settings = settings
        self._fixed = fixed_masters(settings)
        for each in self._fixed.values():
            copy_spec(plan, each)
        self._writer = log
        self._late_code = late_code
        self._files = RealFileSystem.of_store(plan.path, plan.opening.settings.core.group)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(daemon.log_failure)
        self._manager = notify.Notifier.of(os.environ)
        beside = [each for each in plan.services if each.kind == "service"]
        self._supervisor = service.Supervisor(beside, plan.path, plan.settings, self._loop)
        self._started_ms = status.now_ms()
        self._usage = processes.Usage()
        self._masters: dict[str, SourceMaster] = {}
        self._copies: dict[str, service.Service] = {}
        self._listed: set[str] = set()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._state = status.SERVING
        self._notified_status = ""

    def run(self) -> daemon.Ending:
        """Copy until a stop is requested; ``FAILED`` if a copy was not running then.

        Raises :class:`~lakelog.errors.StoreError`, also as
        :class:`~lakelog.errors.StoreLocked`. Main thread only.
        """
        path = self._plan.path
        with closing(self._loop):
            if (path / COMMITLOG_DIR).exists():
                raise StoreError(
                    "a store is here; give a folder for those of the copies", path=path
                )
            try:
                self._files.make_dir(path / OWN_DIR)
            except OSError as error:
                what = f"the folder cannot be made: {error.strerror}"
                raise StoreError(what, path=path) from error
            with (
                file_lock.locked(path, _LOCK_FILE, "another process copies masters to this folder"),
                daemon.signals_in(self._loop, (*_STOP, signal.SIGHUP), self._signalled),
            ):
                known = read_masters(self._files, path) if self._settings.name_servers else []
                return self._loop.run_until_complete(self._serve(known))

    async def _serve(self, known: Sequence[SourceMaster]) -> daemon.Ending:
        path, plan = self._plan.path, self._plan
        service.end_leftovers(self._files, path, self._loop)
        with suppress(OSError):  # a full disk of this folder; the copies may be on others
            status.write_pid(self._files, path)
        _LOG.info("copies masters to %s", path, extra=logs.fields("serving", pid=os.getpid()))
        self._supervisor.start()
        self._take(known)
        self._take([*self._fixed.values()])
        watch = NameServerWatch(self._settings, self._hand_over)
        watch.start()
        daemon.every(self._loop, plan.settings.status_interval_ms / 1000, self._tick)
        self._manager.send(notify.READY)
        try:
            await self._stop.wait()
        finally:
            watch.stop()
            ending = await self._end()
        return ending

    def _hand_over(self, found: list[SourceMaster]) -> None:
        """Pass the found masters to the event loop, from the thread that asks name servers."""
        with suppress(RuntimeError):  # the loop has just been closed
            self._loop.call_soon_threadsafe(self._found, found)

    # --- masters that come, move and go ---

    def _found(self, masters: Sequence[SourceMaster]) -> None:
        """Take the masters that name servers list now; called in the event loop."""
        if self._state != status.SERVING or not masters:
            return
        listed = {each.name for each in masters}
        for name in sorted(self._listed - listed):
            _LOG.warning(
                "%s is listed no longer, or does not answer; its copy is kept, and retried", name
            )
        self._listed = listed
        if self._take([each for each in masters if each.name not in self._fixed]):
            self._remember()

    def _take(self, masters: Sequence[SourceMaster]) -> bool:
        """Start copies of new masters, and restart copies whose master's address changed.

        :returns: whether a master is new or changed

        Raises :class:`~lakelog.errors.SettingsError`.
        """
        changed = [each for each in masters if self._masters.get(each.name) != each]
        for each in changed:
            self._masters[each.name] = each
            spec = copy_spec(self._plan, each)
            if each.name in self._copies:
                _LOG.warning("%s is at %s now", each.name, each.places)
                self._copies[each.name].become(spec)
            else:
                _LOG.info("copies %s, at %s", each.name, each.places)
                self._copies[each.name] = self._supervisor.add(spec)
        return bool(changed)

    def _remember(self) -> None:
        found = [each for name, each in self._masters.items() if name not in self._fixed]
        try:
            write_masters(self._files, self._plan.path, found)
        except OSError as error:
            _LOG.error("the masters cannot be noted for the next start: %s", error)

    # --- status and signals ---

    def _tick(self) -> None:
        if self._state == status.STOPPED:  # asyncio may make a last call
            return
        self._supervisor.look()
        self._report()
        if self._manager.watchdog_seconds is not None:
            self._manager.send(notify.WATCHDOG)

    def _report(self) -> None:
        content = self._status()
        with suppress(OSError):  # a full disk, as for the PID file
            status.write_status(self._files, self._plan.path, content)
        text = "; ".join((f"{self._state}, {content['health']}", *content["problems"]))
        if text != self._notified_status:
            self._notified_status = text
            self._manager.send(notify.STATUS + text)

    def _status(self) -> dict[str, Any]:
        """The status, as described in this module; CPU times cover the time since the last one."""
        path, rows = self._plan.path, self._supervisor.rows()
        problems = unhealthy(rows)
        return {
            "version": status.VERSION,
            "path": str(path),
            **status.writer(),
            "started_ms": self._started_ms,
            "heartbeat_ms": status.now_ms(),
            "state": self._state,
            "health": "degraded" if problems else "ok",
            "problems": problems,
            "masters": {
                each.name: {
                    "slaves": str(each.slaves),
                    "broker": None if each.broker is None else str(each.broker),
                    "listed": each.name in self._listed,
                }
                for each in self._masters.values()
            },
            "disks": status.disks(path, path),
            "processes": self._usage.rows(os.getpid(), rows),
            "log_lines_dropped": self._writer.dropped,
        }

    def _signalled(self, number: signal.Signals) -> None:
        """SIGHUP reopens the log file; the first other signal stops, the second one at once."""
        if number is signal.SIGHUP:
            self._writer.reopen()
            return
        hurried = self._stop.is_set()
        (self._hurry if hurried else self._stop).set()
        _LOG.info("%s: %s", number.name, "copies are stopped at once" if hurried else "stops")

    async def _end(self) -> daemon.Ending:
        begun, seconds = time.monotonic(), self._plan.settings.stop_timeout_ms / 1000
        failed = unhealthy(self._supervisor.rows())
        with daemon.deadline(seconds + _MORE_SECONDS, self._late_code, self._writer):
            self._state = status.STOPPING
            self._manager.send(notify.STOPPING)
            await self._supervisor.stop(seconds, self._hurry)
            self._state = status.FAILED if failed else status.STOPPED
            self._report()
            self._state = status.STOPPED
            status.remove_pid(self._files, self._plan.path)
        for each in failed:
            _LOG.error("at the stop, %s", each)
        _LOG.info("stopped after %.1f s", time.monotonic() - begun, extra=logs.fields("stopped"))
        return daemon.Ending.FAILED if failed else daemon.Ending.STOPPED


def unhealthy(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One text for each program that is restarting or hanging."""
    return [
        f"the copy of {row['name']} is {row['health']} ({row['last_exit']})"
        for row in rows
        if row["health"] in ("restarting", "hanging")
    ]


def fixed_masters(settings: SlaveSettings) -> dict[str, SourceMaster]:
    """The masters in the settings, by name; raises :class:`~lakelog.errors.SettingsError`."""
    key = "rocketmq-ha.masters"
    if settings.master:
        raise SettingsError("give either one master, or several", key=key)
    found: dict[str, SourceMaster] = {}
    for text in settings.masters:
        each = SourceMaster.parse(text)
        if each.name in found:
            raise SettingsError(f"two masters are called {each.name!r}", key=key)
        if settings.vouch == "flushed" and each.broker is None:
            what = f"vouch = 'flushed' asks the listenPort of {each.name}: add ',HOST:PORT'"
            raise SettingsError(what, key=key)
        found[each.name] = each
    return found


def copy_spec(plan: ServePlan, master: SourceMaster) -> Spec:
    """Return the program that copies ``master`` into the folder of the master's name.

    The name is also the store id in tables, so a copy that starts anew lands no row twice. Raises
    :class:`~lakelog.errors.SettingsError`.
    """
    words = ["replicate", str(plan.path / master.name), "--from", str(master.slaves)]
    if master.broker is not None:
        words += ["--broker", str(master.broker)]
    given = plan.opening.settings
    settings: dict[str, Any] = {f"{_SECTION}.masters": (), f"{_SECTION}.name_servers": ()}
    for key, (_, _, value) in given.values().items():  # each copy has its own defaults
        if value is not None and given.is_chosen(key) and key not in _REPLACED:
            settings[key] = value
    if "lake" in given.core.followers:
        settings["lake.options"] = (*_lake_options(plan), _STORE_ID, master.name)
    sets = list[str]()
    for key, value in settings.items():
        written = json.dumps(value, ensure_ascii=False, default=os.fspath)
        sets += ["--set", f"{key}={written}"]
    return Spec(master.name, "service", lakelog(0, *words), json.dumps(sets))


def _lake_options(plan: ServePlan) -> tuple[str, ...]:
    """The options of landing.

    Copies commit in turns, and each lands in one process without Spark unless an engine is given.
    Raises :class:`~lakelog.errors.SettingsError`.
    """
    settings = plan.opening.settings.section("lake")
    options: tuple[str, ...] = settings.options
    given = {each.partition("=")[0] for each in options}
    if _STORE_ID in given:
        raise SettingsError(
            f"{_STORE_ID} is the name of the master, for each of several", key="lake.options"
        )
    if _COMMIT_LOCK not in given:
        options = (*options, _COMMIT_LOCK, str(plan.path / OWN_DIR / "commits.lock"))
    if given & _ENGINES or settings.to.startswith("spark:"):
        return options
    return (*options, *_ONE_PROCESS)


def master_brokers(name_server: Address, cluster: str = "") -> dict[str, Address]:
    """The client address of each master that ``name_server`` lists, by broker name.

    :param cluster: list only masters of this cluster; all if empty

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`.
    """
    body, found = call(name_server, GET_BROKER_CLUSTER_INFO).body, dict[str, Address]()
    try:
        for name, row in parse_object(body)["brokerAddrTable"].items():
            address = row["brokerAddrs"].get(_MASTER_ID)
            if address is not None and cluster in ("", row["cluster"]):
                found[name] = Address.parse(address)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokerRefused(f"{name_server} answers with no list of brokers: {error!r}") from None
    return found


def source_of(name: str, broker: Address) -> SourceMaster:
    """Ask a master for its address for slaves.

    :param name: the broker's name
    :param broker: its address for clients

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`, and ``ValueError`` for a name that
    no folder can have.
    """
    SourceMaster.checked_name(name)
    config = broker_config(broker)
    port, host = config.get("haListenPort", ""), config.get("brokerIP2", "") or broker.host
    try:
        return SourceMaster(name, Address.parse(f"{host}:{port}"), broker)
    except ValueError as error:
        raise BrokerRefused(f"{broker} does not say where slaves connect: {error}") from None


def listed_masters(
    name_servers: Iterable[Address], cluster: str, on_trouble: Callable[[str], None]
) -> list[SourceMaster]:
    """The masters that answer now, from the first name server that answers.

    :param cluster: name of the cluster; all clusters if empty
    :param on_trouble: called with a text for each failure
    """
    brokers: dict[str, Address] = {}
    for each in name_servers:
        try:
            brokers = master_brokers(each, cluster)
            break
        except BrokerRefused as error:
            on_trouble(f"name server: {error}")
    found = []
    for name, broker in brokers.items():
        try:
            found.append(source_of(name, broker))
        except (BrokerRefused, ValueError) as error:
            on_trouble(f"broker {name}: {error}")
    return found


@attrs.define(eq=False)
class NameServerWatch:
    """Asks name servers at an interval, in a thread.

    :ivar on_found: called in the thread with the masters that answered
    """

    settings: SlaveSettings
    on_found: Callable[[list[SourceMaster]], None]
    _logged: set[str] = attrs.field(factory=set)
    _failures: set[str] = attrs.field(factory=set)
    _over: Event = attrs.field(factory=Event)

    def start(self) -> None:
        """Begin to ask; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        started(Thread(target=self._run, name="lakelog-name-servers", daemon=True))

    def stop(self) -> None:
        """Stop asking; do not wait for a request under way."""
        self._over.set()

    def _run(self) -> None:
        settings = self.settings
        addresses = [Address.parse(each) for each in settings.name_servers]
        while not self._over.is_set():
            self._failures = set()
            found = listed_masters(addresses, settings.cluster, self._on_failure)
            for each in sorted(self._logged - self._failures):
                _LOG.info("no longer so: %s", each)
            self._logged = self._failures
            if not self._over.is_set():
                self.on_found(found)
            self._over.wait(settings.name_server_interval_ms / 1000)

    def _on_failure(self, what: str) -> None:
        """Log a failure when it begins; :meth:`_run` logs its end."""
        self._failures.add(what)
        if what not in self._logged:
            _LOG.warning("%s", what)


def read_masters(files: FileSystem, folder: Path) -> list[SourceMaster]:
    """Read the listed masters whose copies exist in ``folder``.

    Raises :class:`~lakelog.errors.StoreError` for a damaged file, and ``OSError``.
    """
    file = folder / OWN_DIR / MASTERS_FILE
    try:
        found = json.loads(read_file(files, file) or b'{"version": 1, "masters": {}}')
        if found["version"] != _VERSION:
            raise ValueError(f"its version is {found['version']}, not {_VERSION}")
        masters = [
            SourceMaster.parse(f"{name}={places}") for name, places in found["masters"].items()
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(
            f"the list of masters is damaged ({error}); remove it, and name the masters by --from "
            "or --from-name-server",
            path=file,
        ) from error
    return [each for each in masters if (folder / each.name).is_dir()]


def write_masters(files: FileSystem, folder: Path, masters: Iterable[SourceMaster]) -> None:
    """Replace the file; raises ``OSError``."""
    content = {"version": _VERSION, "masters": {each.name: each.places for each in masters}}
    write_own(files, folder, MASTERS_FILE, content, indent=1)
