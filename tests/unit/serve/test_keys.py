"""API keys are read again when their file changes, and nobody sees them but the process that checks them."""

import logging
from pathlib import Path

import pytest

from rayrank.core.errors import ConfigError
from rayrank.serve import keys
from rayrank.serve.config import read
from rayrank.serve.keys import ApiKeys, environment_digests


@pytest.fixture(autouse=True)
def _without_keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYRANK_API_KEYS", raising=False)
    monkeypatch.setattr(keys, "LOOK_S", 0.0)


def name_of(found: ApiKeys, key: bytes) -> str | None:
    client = found.client_of(key)
    return client and client.name


def api_keys(file: Path) -> ApiKeys:
    return ApiKeys(read({"model": "m", "keys_file": str(file)}))


def test_keys_come_from_the_file_the_environment_and_the_process_that_built_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text("# our teams\none  # search team\n\n two#2 \n")
    monkeypatch.setenv("RAYRANK_API_KEYS", "three")
    given = environment_digests()
    monkeypatch.setenv("RAYRANK_API_KEYS", "four")
    found = ApiKeys(read({"model": "m", "keys_file": str(tmp_path / "keys")}), given)

    assert found.are_needed
    assert name_of(found, b"one") == "search team"
    assert all((name_of(found, key) or "").startswith("key ") for key in (b"two#2", b"three", b"four"))
    assert not any(name_of(found, key) for key in (b"", b"two", b"# our teams", b"search team", b"on\xe9"))
    assert "three" not in str(given)
    assert not name_of(ApiKeys(read({"model": "m"}), {}), b"one")


def test_a_changed_file_counts_at_once_and_the_log_names_the_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("one # search team\ntwo # shop\n")
    found = api_keys(file)
    assert name_of(found, b"two") == "shop"

    with caplog.at_level(logging.WARNING):
        file.write_text("one # search team\nthree # assistant\n")
        assert (name_of(found, b"two"), name_of(found, b"three")) == (None, "assistant")
    assert [record.getMessage() for record in caplog.records] == ["Keys revoked: shop", "Keys new: assistant"]

    file.unlink()
    assert name_of(found, b"one") == "search team"
    # All keys are revoked; access is not open.
    file.write_text("")
    assert name_of(found, b"one") is None
    assert found.are_needed


def test_a_keys_file_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n# nobody yet\n")
    with pytest.raises(ConfigError, match=r"keys_file=.*/empty has no keys: write one per line"):
        api_keys(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"keys_file=.*/none cannot be read: No such file"):
        api_keys(tmp_path / "none")
