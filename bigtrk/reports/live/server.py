"""The page of runs on this host: a server that answers this host alone, and two questions."""

import json
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from bigtrk.errors import InputError
from bigtrk.reports.live.page import LivePage
from bigtrk.reports.live.watch import Watch

HERE = "127.0.0.1"
# A page from elsewhere whose host's name leads here (DNS rebinding) names another host.
LOCAL = (HERE, "localhost", "[::1]")
PATIENCE = 10.0  # s
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LiveServer(ThreadingTCPServer):
    """Serves the page of runs at `/` and their state at `/state`, on 127.0.0.1 alone.

    port: 0 takes one that is free.

    Raises:
        InputError: the port is taken, or not this user's to take.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, watch: Watch, port: int) -> None:
        self._watch, self._page = watch, LivePage(watch.labels)
        self._reading = threading.Lock()
        try:
            super().__init__((HERE, port), _Handler)
        except OSError as error:
            raise InputError(
                f"--port {port}: {error.strerror}; choose another, or leave it out for a free one"
            ) from None

    @property
    def address(self) -> str:
        """Returns the page's address."""
        return f"http://{HERE}:{self.server_address[1]}/"

    def page(self) -> bytes:
        """Returns the page as it is now."""
        with self._reading:
            return self._page.html(self._watch.look()).encode()

    def state(self) -> bytes:
        """Returns what the page is to show now, as JSON."""
        with self._reading:
            return json.dumps(self._page.state(self._watch.look())).encode()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints a defect; a browser that is gone is none."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET alone, of the two paths, to this host; a method without a function is refused."""

    server: LiveServer
    timeout = PATIENCE
    server_version, sys_version = "bigtrk", ""

    def do_GET(self) -> None:
        """Answers a question; its name is what the base class looks for."""
        answers: dict[str, tuple[str, Callable[[], bytes]]] = {
            "/": ("text/html; charset=utf-8", self.server.page),
            "/state": ("application/json", self.server.state),
        }
        if not _is_local(self.headers.get_all("Host", [])):
            self.send_error(HTTPStatus.FORBIDDEN, explain="This page is for its own host alone")
        elif self.path not in answers:
            self.send_error(HTTPStatus.NOT_FOUND, explain="The page is at /")
        else:
            kind, make = answers[self.path]
            self._answer(kind, make())

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in {"Content-Type": kind, **HEADERS}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing of requests."""


def _is_local(hosts: list[str]) -> bool:
    """Says whether a request names this host, and no other: by whatever port, which may have been
    passed on by ssh.
    """
    if len(hosts) != 1:
        return False
    name, _, port = hosts[0].strip().lower().rpartition(":")
    return (name if port.isdecimal() else hosts[0].strip().lower()) in LOCAL
