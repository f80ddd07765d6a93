"""What `quorate up` tells of what happens."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.cli.up_status import EVENTS_SHOWN, Watch
from quorate.testing.control import Launched

ANSWERS: dict[str, Any] = {
    "/v1/controller": {"is_active": True, "epoch": 1},
    "/v1/brokers": {"brokers": []},
    "/v1/partitions": {"total": 0, "leaderless": 0, "under_replicated": 0},
}


class Controller(BaseHTTPRequestHandler):
    """Has much to tell to whoever asks for the first time."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        answer = ANSWERS.get(path)
        if answer is None:
            is_first = "from=" not in query
            one = {"kind": "ControllerRegistered", "time_ms": int(time.time() * 1000) + 60_000}
            answer = {"events": [one] * (EVENTS_SHOWN * 2 if is_first else 0), "next": EVENTS_SHOWN * 2}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Controller)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_node_that_died_is_told_after_what_the_controller_has_to_tell(address: str):
    def node(node_id: int, role: str, state: str) -> dict[str, Any]:
        return {
            "id": node_id,
            "roles": [role],
            "state": state,
            "ready": True,
            "admin": address,
            "port": 1,
            "listeners": {"CONTROLLER": "127.0.0.1:1"},
            "exit_status": -9,
            "log": "node.log",
        }

    nodes = [node(2, "broker", "dead"), node(101, "controller", "running")]
    state = {"ready": False, "mode": "kraft", "nodes": nodes, "unwritten": None}
    launched = SimpleNamespace(state=lambda: state, directory=Path("data"))
    watch = Watch(cast("Launched", launched))
    watch.look()
    news = list(watch.read_news())
    assert len(news) > EVENTS_SHOWN
    assert "node 2 is dead (status -9, log node.log): quorate lab restart 2 --data data" in news[-1]
    for unwritten in ("cluster.json cannot be written: No space left on device", None):
        state["unwritten"] = unwritten
        watch.look()
        (line,) = watch.read_news()
        assert line.endswith(unwritten or "cluster.json is written again")
