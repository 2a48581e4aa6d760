"""Tests the page of runs and its server, which answers its own host alone."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.records.run_folder import append_metrics
from bigtrk.reports.live.page import LivePage
from bigtrk.reports.live.server import LiveServer
from bigtrk.reports.live.watch import Watch
from tests.programs import CHECKOUT
from tests.reports.live.runs import training
from tests.reports.live.serving import serving
from tests.reports.pages import parsed
from tests.reports.run_folders import epoch_record, run_writer, step_record


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_writer(tmp_path)("0001", lines=[step_record(0), step_record(1)])


@pytest.fixture
def server(run: Path) -> Iterator[LiveServer]:
    with serving(run) as made:
        yield made


def ask(
    server: LiveServer, path: str, method: str = "GET", host: str | None = None
) -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_address[1]}")
    connection.endheaders()
    return connection.getresponse()


def test_the_state_follows_the_records(server: LiveServer, run: Path) -> None:
    answer = ask(server, "/state")
    assert (answer.status, answer.getheader("Content-Type")) == (200, "application/json")
    assert answer.getheader("Access-Control-Allow-Origin") is None
    before = json.loads(answer.read())
    assert "0.35000" in before["now"]
    append_metrics(run, step_record(2, loss=0.125))
    append_metrics(run, epoch_record(0))
    after = json.loads(ask(server, "/state").read())
    assert "0.12500" in after["now"]
    titles = ['aria-label="step/loss"', 'aria-label="epoch/validation/auc"']
    assert [sum(title in plot for plot in before["plots"]) for title in titles] == [1, 0]
    assert [sum(title in plot for plot in after["plots"]) for title in titles] == [1, 1]


def test_the_page_holds_all_that_it_needs(server: LiveServer, tmp_path: Path) -> None:
    answer = ask(server, "/")
    assert answer.status == 200
    (tmp_path / "page.html").write_bytes(answer.read())
    page = parsed(tmp_path / "page.html")
    assert not page.references
    assert any('fetch("state"' in script.text for script in page.scripts)
    assert page.figure("step/loss").data[0]["y"] == [0.7, 0.35]


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1", "LOCALHOST:80"])
def test_this_host_is_answered(server: LiveServer, host: str) -> None:
    assert ask(server, "/state", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/state"])
def test_other_hosts_are_refused(server: LiveServer, host: str, path: str) -> None:
    answer = ask(server, path, host=host or " ")
    assert answer.status == 403
    assert b"0.35" not in answer.read()


def test_a_request_must_name_one_host(server: LiveServer) -> None:
    for lines in ("", "Host: localhost\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as connection:
            connection.sendall(f"GET /state HTTP/1.1\r\n{lines}\r\n".encode())
            assert b" 403 " in connection.recv(1000).split(b"\r\n")[0]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_other_methods_are_refused(server: LiveServer, method: str) -> None:
    assert ask(server, "/state", method).status == 501


@pytest.mark.parametrize("path", ["/run.json", "/state/", "/../etc/passwd", "/?x", "http://x/"])
def test_other_paths_are_not_there(server: LiveServer, path: str) -> None:
    assert ask(server, path).status == 404


def test_the_server_is_on_this_host_alone(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_address[1]}/"


def test_a_port_that_is_taken_is_named(server: LiveServer, run: Path) -> None:
    port = server.server_address[1]
    with pytest.raises(InputError, match=f"--port {port}: Address already in use; choose another"):
        LiveServer(Watch([run]), port)


def test_figures_are_made_again_only_with_more_to_draw() -> None:
    page, run = LivePage(["0001"]), training()
    page.state([run])
    made = dict(page._drawn)
    page.state([training(step=5)])
    assert all(page._drawn[name] is made[name] for name in made)
    curves = {**run.curves, "step/loss": [(0.0, 0.5)]}
    page.state([training(curves=curves)])
    assert [name for name in made if page._drawn[name] is not made[name]] == ["step/loss"]


def test_names_are_no_markup(tmp_path: Path) -> None:
    name = "</script><b>x</b>\x1b"
    page = LivePage([name])
    (tmp_path / "page.html").write_text(page.html([training(Path(name))]), "utf-8")
    assert "b" not in parsed(tmp_path / "page.html").tags
    state = page.state([training(Path(name))])
    assert "<b>" not in state["now"]
    assert "\\x1b" in state["now"]
    assert not any("<b>" in plot or "\x1b" in plot for plot in state["plots"])


# A shell starts what is in the background with Ctrl-C ignored.
COMMAND = """
import signal
from bigtrk.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def test_the_command_says_its_address_and_ends_quietly_on_ctrl_c(run: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "watch", str(run), "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            address = said.split()[0]
            assert said == f"{address} shows them as records come; Ctrl-C ends it\n"
            with urllib.request.urlopen(f"{address}state", timeout=30) as answer:
                assert "0.35000" in json.load(answer)["now"]
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out, errors) == (0, "", "")
