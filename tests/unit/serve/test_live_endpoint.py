"""What a promotion asks of the live endpoint: a wrong URL is one sentence, and a busy endpoint is asked again."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from rayrank.core.errors import ConfigError
from rayrank.serve import live_endpoint
from rayrank.serve.live_endpoint import Endpoint


@pytest.mark.parametrize("url", ["myhost", "http://", "ftp//myhost", "http://my host", "http://[::1"])
def test_a_url_that_is_none_is_one_sentence(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^--endpoint .* cannot be used for the comparison: .*; name the live"):
        Endpoint(url).first_stage_weight()


@pytest.fixture
def busy(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that answers the first request by 503 with the parameter as Retry-After."""

    class Handler(http.server.BaseHTTPRequestHandler):
        num_asked = 0

        def do_GET(self) -> None:
            Handler.num_asked += 1
            body = json.dumps({"first_stage_weight": 0.25}).encode()
            self.send_response(503 if Handler.num_asked == 1 else 200)
            if request.param:
                self.send_header("Retry-After", request.param)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(10)


@pytest.mark.parametrize(
    ("busy", "seconds"),
    [("3", 3), ("600", 5), ("", 1), ("Wed, 21 Oct 2026 07:28:00 GMT", 1), ("-1", 1), ("nan", 1)],
    indirect=["busy"],
)
def test_a_busy_endpoint_is_asked_again_after_the_seconds_that_it_names(
    busy: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(live_endpoint.time, "sleep", waits.append)

    assert Endpoint(busy).first_stage_weight() == 0.25
    assert waits == [seconds]
