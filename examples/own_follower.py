"""How is a program of one's own run beside ``lakelog serve``, for example one that calls a webhook?

As a follower: ``serve`` runs it in a process of its own, and starts it again when it ends or hangs.
This one posts each message, at least once, as a member of a consumer group.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.request import Request, urlopen

import attrs

import lakelog
from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind
from lakelog.runtime.threads import started


@attrs.frozen
class WebhookSettings:
    """Section ``[webhook]``: messages of ``topic`` are posted to ``url``."""

    url: str = "http://127.0.0.1:8080/"
    topic: str = "orders"


@attrs.define(eq=False)
class Webhook:
    """Posts messages from a thread; ``is_well`` tells ``serve`` how that goes."""

    store: Path
    settings: WebhookSettings
    stopping: Event = attrs.field(factory=Event)
    thread: Thread | None = None
    failure: Exception | None = None

    def start(self) -> None:
        """Begin; the store may be used by any number of processes."""
        self.thread = started(Thread(target=self._run, name="webhook", daemon=True))

    def stop(self) -> None:
        """Return once the thread has stopped; a message that is not acknowledged comes again."""
        self.stopping.set()
        if self.thread is not None:
            self.thread.join()

    def is_well(self) -> bool:
        """Raise what ended the thread, so that ``serve`` starts this program again."""
        if self.failure is not None:
            raise self.failure
        return True

    def _run(self) -> None:
        try:
            with (
                lakelog.open(self.store) as store,
                store.subscribe("webhook", self.settings.topic, start="earliest") as consumer,
            ):
                while not self.stopping.is_set():
                    for delivery in consumer.poll(wait_ms=100):
                        body = bytes(delivery.message.body)
                        urlopen(Request(self.settings.url, body), timeout=10).close()
                        consumer.ack(delivery)
        except Exception as error:  # noqa: BLE001  # is_well raises it
            self.failure = error


def make(settings: WebhookSettings, context: Context) -> Webhook:
    """Make the follower, in its process."""
    return Webhook(context.path, settings)


@hookimpl
def lakelog_followers() -> Sequence[Factory]:
    """Offer it; this module is the plugin."""
    return [Factory(Kind.FOLLOWER, "webhook", WebhookSettings, make)]


def installed(folder: Path) -> dict[str, str]:
    """An environment in which this module is an installed plugin; pip does this for a package."""
    about = folder / "webhook-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: webhook\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[lakelog]\nwebhook = own_follower\n")
    path = os.pathsep.join([str(folder), str(Path(__file__).parent)])
    return {**os.environ, "PYTHONPATH": path}


class Receiver(BaseHTTPRequestHandler):
    """Somebody's web service."""

    def do_POST(self) -> None:  # the library looks for this name
        """Print what came."""
        print("posted:", self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main(folder: Path) -> None:
    """Put messages while nobody serves the store; then serve it, and receive them."""
    with lakelog.open(folder / "store", segment_size_bytes="1MiB") as store:
        for number in range(3):
            store.put(lakelog.Message("orders", b"order %d" % number, queue_id=0))
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.timeout = 60  # seconds, if nothing comes
        url = f"http://127.0.0.1:{server.server_port}/"
        options = ["--set", 'followers=["webhook"]', "--set", f"webhook.url={url}"]
        command = [sys.executable, "-m", "lakelog", "serve", str(folder / "store"), *options]
        environment = installed(folder / "site")
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as serve:
            for _ in range(3):
                server.handle_request()
            serve.terminate()
    print("serve ended with", serve.returncode)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
