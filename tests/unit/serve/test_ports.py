"""A second server is refused, although Ray would let it share the port."""

import socket
from collections.abc import Iterator

import pytest

from rayrank.core.errors import ConfigError
from rayrank.serve.ports import check_free


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which a socket listens that lets others share it, as Ray's do."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        yield server.getsockname()[1]


def test_a_port_that_another_server_would_share_is_refused(taken: int) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(ConfigError, match=rf"^port={taken} is taken: another server listens on {host}:{taken}; "):
            check_free(host, taken)


def test_a_port_is_free_as_soon_as_its_server_has_ended(taken: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # The connection that the server closes first stays in the system for a minute.
        client = socket.create_connection(("127.0.0.1", port))
        server.accept()[0].close()
        client.close()
    check_free("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port", "reason"), [("127.0.0.1", 70000, "between 1 and 65535"), ("8.8.8.8", 80, "")])
def test_an_address_that_this_machine_does_not_have_is_refused(host: str, port: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"--port {port} cannot be used: .*{reason}"):
        check_free(host, port)


def test_an_address_of_ipv6_is_checked_too() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^port={port} is taken"):
            check_free("::1", port)
    check_free("::1", port)
