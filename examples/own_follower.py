"""How does ``lakelog serve`` run a program of your own, for example one that calls a webhook?

As a follower: ``serve`` runs it in a separate process, and restarts it when it ends or hangs.
This follower posts each message, at least once, as a member of a consumer group.
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
from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl
from lakelog.runtime.threads import started


@attrs.frozen
class WebhookSettings:
    """Section ``[webhook]``: messages of ``topic`` are posted to ``url``."""

    url: str = "http://127.0.0.1:8080/"
    topic: str = "orders"


@attrs.define(eq=False)
class Webhook:
    """Posts messages from a thread; ``is_well`` reports a failure of the thread to ``serve``."""

    store: Path
    settings: WebhookSettings
    stopping: Event = attrs.field(factory=Event)
    thread: Thread | None = None
    failure: Exception | None = None

    def start(self) -> None:
        """Start the thread, which opens the store; other processes may have it open too."""
        self.thread = started(Thread(target=self._run, name="webhook", daemon=True))

    def stop(self) -> None:
        """Stop the thread, and wait for it; unacknowledged messages are delivered again."""
        self.stopping.set()
        if self.thread is not None:
            self.thread.join()

    def is_well(self) -> bool:
        """Raise the exception that ended the thread, so that ``serve`` restarts this program."""
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
    """Make the follower, in its own process."""
    return Webhook(context.path, settings)


@hookimpl
def lakelog_followers() -> Sequence[Factory]:
    """Offer it; this module is the plugin."""
    return [Factory(Kind.FOLLOWER, "webhook", WebhookSettings, make)]


def installed(folder: Path) -> dict[str, str]:
    """Return an environment with this module as an installed plugin, as pip would install it."""
    about = folder / "webhook-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: webhook\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[lakelog]\nwebhook = own_follower\n")
    path = os.pathsep.join([str(folder), str(Path(__file__).parent)])
    return {**os.environ, "PYTHONPATH": path}


class Receiver(BaseHTTPRequestHandler):
    """The web service that the follower calls."""

    def do_POST(self) -> None:  # the name that http.server requires
        """Print the posted body."""
        print("posted:", self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main(folder: Path) -> None:
    """Put messages while no process serves the store; then serve it, and receive them."""
    with lakelog.open(folder / "store", segment_size_bytes="1MiB") as store:
        for number in range(3):
            store.put(lakelog.Message("orders", b"order %d" % number, queue_id=0))
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.timeout = 60  # seconds of waiting for a request
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
