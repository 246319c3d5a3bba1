"""What was measured of an endpoint: its latency at increasing loads, for each number of documents in a request."""

from pathlib import Path

from pydantic import Field, ValidationError

from rayrank.core.errors import ConfigError
from rayrank.core.section import Section


class LoadPoint(Section):
    """The figures of one load."""

    rps: float
    """Requests per second that were sent."""
    achieved: float
    """Requests per second that were answered."""
    p50: float
    p95: float
    p99: float
    """Seconds from the scheduled time of a request to the end of its answer."""
    num_requests: int
    failures: int = 0
    replicas: int = 1
    """Replicas of the model that answered at the end of this load."""


class LoadCurve(Section):
    """All loads with one number of documents in a request, the lowest first."""

    documents: int = Field(ge=1)
    points: tuple[LoadPoint, ...]


class Capacity(Section):
    """A measurement of a running endpoint."""

    model: str
    device: str
    backend: str
    dtype: str
    created: str
    texts: str
    """What the requests consisted of, in a few words."""
    words: float
    """Mean words of a document."""
    curves: tuple[LoadCurve, ...] = Field(min_length=1)

    def write(self, file: str) -> None:
        """Write the measurement as JSON."""
        try:
            Path(file).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--file {file} cannot be written: {error.strerror}; name another file.") from None


def read_capacity(option: str, file: str) -> Capacity:
    """Return a measurement that `rayrank plan --measure` wrote."""
    advice = "make one with rayrank plan --measure URL"
    try:
        return Capacity.model_validate_json(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{option} {file} cannot be read: {error.strerror}; {advice}.") from None
    except (ValidationError, UnicodeDecodeError):
        raise ConfigError(f"{option} {file} is not a measurement of an endpoint: {advice}.") from None
