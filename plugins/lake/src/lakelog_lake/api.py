"""Landing from Python, as the commands ``lakelog dispatch`` and ``lakelog lake`` do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event

import attrs

from lakelog.arguments import encodable, folder, span_ms, whole, wrong_type
from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.errors import TemporaryError
from lakelog_lake.landing import dispatcher, targets
from lakelog_lake.log.wanted import Chosen
from lakelog_lake.maintenance.tables import Status, statuses
from lakelog_lake.tables.settings import DEFAULT_INTERVAL_MS, Resume
from lakelog_lake.tables.shape import parse
from lakelog_lake.tasks import engines, task
from lakelog_lake.tasks.task import LandingSource
from lakelog_lake.verify.landed_table import all_opened
from lakelog_lake.verify.verify import Verified, VerifyRequest, verify_here


@attrs.frozen
class LandingResult:
    """What one call of :meth:`Landing.once` added.

    :ivar rows: number of rows added to all tables, dead letters included
    :ivar dead_letters: number of rows whose bodies do not parse
    :ivar files: number of new data files
    """

    rows: int
    dead_letters: int
    files: int


def _path(given: str | Path) -> Path:
    return folder("store", given)


@attrs.frozen
class Landing:
    """A store, and the tables in which its messages land, each exactly once.

    The tables have the position reached, so an object has no state: any process may continue where
    another one ended. The errors are those of :mod:`lakelog_lake.errors`, and
    :class:`~lakelog.errors.SettingsError` for a wrong argument.

    :ivar store: the store directory
    :ivar to: ``KIND:PATH``: ``iceberg``, ``delta`` or ``parquet`` and a folder or URI, or
        ``catalog:NAME``; ``{topic}`` in it, or in ``table``, makes one table for each topic
    :ivar table: for Iceberg ``NAMESPACE.TABLE``, by default ``lakelog.messages``
    :ivar bodies: formats of bodies by topic, such as ``{"orders": "json:orders.schema.json"}``
    :ivar partition: partition columns of a new table, of ``topic,day,hour,store``; or ``none``
    :ivar storage: options of the object store, or properties of the catalog
    :ivar store_id: the identity of the store in the tables; by default its UUID
    :ivar system_topics: whether RocketMQ's own topics land as well
    :ivar resume: ``"position"`` or ``"rows"``: what counts in a table that does not show how far
        the store has landed, as the text of :class:`~lakelog_lake.errors.PositionMissing` explains
    :ivar processes: number of processes that write data files; 1 is this process. More need a main
        module that can be imported, with ``if __name__ == "__main__"``
    """

    store: Path = attrs.field(converter=_path)
    to: str
    table: str | None = None
    bodies: Mapping[str, str] = attrs.field(factory=dict)
    partition: str = "topic,day"
    storage: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    store_id: str | None = None
    system_topics: bool = False
    resume: str | None = None
    processes: int = 1

    def __attrs_post_init__(self) -> None:
        """Check the types."""
        for name in ("to", "table", "partition", "store_id", "resume"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name in ("to", "partition")):
                raise wrong_type(name, value, "a str")
        for name in ("bodies", "storage"):
            if not isinstance(getattr(self, name), Mapping):
                raise wrong_type(name, getattr(self, name), "a mapping of str to str")
        for topic, parser in self.bodies.items():
            if not isinstance(parser, str):
                raise wrong_type(f"bodies[{topic!r}]", parser, "a str such as 'json'")
        if self.store_id is not None:
            encodable("store_id", self.store_id)
        whole("processes", self.processes, 1)

    def once(self) -> LandingResult:
        """Land all messages that are durable now."""
        landed: list[dispatcher.Landed] = []
        with self._dispatcher() as lander:
            dispatcher.until_done(lander.one_pass, Event(), landed.append)
        won = [each for each in landed if each.won]
        return LandingResult(
            sum(each.rows for each in won),
            sum(each.dead_letters for each in won),
            sum(each.files for each in won),
        )

    def follow(
        self,
        stop: Event,
        on_landed: Callable[[dispatcher.Landed], None] = lambda _: None,
        on_trouble: Callable[[TemporaryError, float], None] = lambda _error, _seconds: None,
        interval_ms: int = DEFAULT_INTERVAL_MS,
    ) -> None:
        """Land messages as they become durable, until ``stop`` is set; blocks until then.

        :param stop: may be set by another thread or by ``on_landed``; the pass under way ends first
        :param on_landed: called after each pass with its result
        :param on_trouble: called with a temporary error and the seconds until the next try
        :param interval_ms: time between the starts of passes, in steady traffic
        """
        if not isinstance(stop, Event):
            raise wrong_type(
                "stop", stop, "a threading.Event, which ends the landing once it is set"
            )
        seconds = span_ms("interval_ms", interval_ms) / 1000
        alive = dispatcher.WatchdogNotifier.of_this_process()
        with self._dispatcher(stop.is_set) as lander:
            waits = dispatcher.LandingWaits(stop, seconds, lander, alive)
            dispatcher.until_stopped(lander.one_pass, on_landed, on_trouble, waits)

    @contextmanager
    def _dispatcher(
        self, is_last: Callable[[], bool] = lambda: False
    ) -> Iterator[dispatcher.LandingDispatcher]:
        name, chosen = targets.identity_of(self.store, self.store_id), Chosen(self.system_topics)
        parsers = {topic: parser_for(text) for topic, text in self.bodies.items()}
        keys = parse(self.partition)
        resume = Resume.of(self.resume)
        spec = targets.TableSpec(
            self.to, self.table, keys, parsers, storage=self.storage, resume=resume
        )
        is_here = self.processes == 1
        workers = nullcontext(engines.in_process) if is_here else engines.processes(self.processes)
        source = LandingSource(self.store, name, chosen=chosen)
        limits = task.TaskLimits(at_once=self.processes)
        with (
            workers as engine,
            dispatcher.LandingDispatcher.of(source, spec, engine, limits, is_last=is_last) as made,
        ):
            yield made

    def verify(self) -> list[Verified]:
        """Compare each table with the log, row by row; see ``is_clean`` of the results."""
        name, found = targets.identity_of(self.store, self.store_id), []
        for each in all_opened(self.to, self.table, None, self.storage):
            topics = None if each.topic is None else [each.topic]
            chosen = Chosen.of(topics, None, system_topics=self.system_topics)
            found.append(
                verify_here(VerifyRequest(self.store, name, each.table, chosen, each.dead_letters))
            )
        return found

    def status(self) -> list[Status]:
        """The landed position, the lag and the sizes of each table; reads no data file."""
        name = targets.identity_of(self.store, self.store_id)
        return list(statuses(self.store, name, self.to, self.table, self.storage))
