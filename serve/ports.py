"""Whether a port is free: Ray opens its ports so that several servers can share one, and says nothing when they do."""

import errno
import os
import socket

from rayrank.core.errors import ConfigError


def check_free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on because another process does, or for another reason."""
    try:
        # SO_REUSEADDR passes over connections that have just been closed; a socket that listens is still in the way.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family, reuse_port=False).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port={port} is taken: another server listens on {host}:{port}; stop it, or choose another one: "
                "rayrank serve --port PORT."
            ) from None
        # The number of an unknown host is negative, and not one of the system's.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror
        raise ConfigError(f"--host {host} --port {port} cannot be used: {reason}; choose others.") from None
    except OverflowError:
        raise ConfigError(f"--port {port} cannot be used: it must be between 1 and 65535.") from None
