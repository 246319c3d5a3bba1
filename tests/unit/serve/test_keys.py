"""API keys are read again when their file changes, and nobody sees them but the process that checks them."""

import logging
from pathlib import Path

import pytest

from rayrank.core.errors import ConfigError
from rayrank.serve import keys
from rayrank.serve.config import read
from rayrank.serve.keys import ApiKeys, environment_digests, first_key


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
    monkeypatch.setenv("RAYRANK_API_KEYS", "three" * 4)
    given = environment_digests()
    monkeypatch.setenv("RAYRANK_API_KEYS", "four" * 4)
    found = ApiKeys(read({"model": "m", "keys_file": str(tmp_path / "keys")}), given)

    assert found.are_needed
    assert name_of(found, b"one") == "search team"
    assert all((name_of(found, key) or "").startswith("key ") for key in (b"two#2", b"three" * 4, b"four" * 4))
    assert not any(name_of(found, key) for key in (b"", b"two", b"# our teams", b"search team", b"on\xe9"))
    assert "three" not in str(given)
    assert not name_of(ApiKeys(read({"model": "m"}), {}), b"one")


def test_the_first_key_of_a_file_with_a_byte_order_mark_is_known(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one # search team\ntwo\n", encoding="utf-8-sig")
    found = api_keys(tmp_path / "keys")
    assert name_of(found, b"one") == "search team"
    assert name_of(found, b"two")


def test_clients_send_the_first_key_of_the_environment_without_its_limits_and_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long, other = "a#1" * 6, "b" * 16
    for text, key in (("", ""), (long, long), (f" , {other} requests=600 passages=9 # shop,{long}", other)):
        monkeypatch.setenv("RAYRANK_API_KEYS", text)
        assert first_key() == key
        assert not key or name_of(ApiKeys(read({"model": "m"})), key.encode())


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


def test_a_key_has_the_limits_of_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(keys.time, "monotonic", lambda: now)
    (tmp_path / "keys").write_text("one requests=60 passages=600  # search team\ntwo # shop\n")
    config = read({"model": "m", "keys_file": str(tmp_path / "keys")})
    # One of two ingress replicas grants half of a limit.
    found = ApiKeys(config, num_ingresses=2)
    limited, free = found.client_of(b"one"), found.client_of(b"two")
    assert limited
    assert free
    assert limited.name == "search team"

    assert [limited.take("requests", 1) for _ in range(30)] == [0] * 30
    assert limited.take("requests", 1) == pytest.approx(2)
    now += 1.9
    assert limited.take("requests", 1) == pytest.approx(0.1)
    now += 0.2
    assert limited.take("requests", 1) == 0
    assert free.take("requests", 1_000_000) == 0

    # A request with more passages than a minute has is answered, and the next ones wait for its share.
    assert limited.take("passages", 900) == 0
    assert limited.take("passages", 1) == pytest.approx(60 * 601 / 300)
    now += 3600
    assert limited.take("passages", 300) == 0
    assert limited.take("passages", 1) == pytest.approx(0.2)


def test_a_key_whose_line_stays_keeps_what_is_left_of_its_limits(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one requests=1\ntwo requests=1\n")
    found = api_keys(file)
    for key in (b"one", b"two"):
        client = found.client_of(key)
        assert client
        assert client.take("requests", 1) == 0
    file.write_text("one requests=1\ntwo requests=2  # shop\n")
    one, two = found.client_of(b"one"), found.client_of(b"two")
    assert one
    assert two
    assert one.take("requests", 1) > 0
    assert two.take("requests", 1) == 0


@pytest.mark.parametrize("words", ["request=5", "requests=0", "requests=-1", "passages=", "two", "requests=1 more"])
def test_a_wrong_limit_is_refused_without_showing_the_key(words: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"# teams\nsesame {words} # shop\n")
    with pytest.raises(ConfigError, match=r"line 2 has something else than limits .*: write requests=N or") as raised:
        api_keys(tmp_path / "keys")
    assert "sesame" not in str(raised.value)


def test_a_comma_in_a_name_makes_no_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYRANK_API_KEYS", f"{'k' * 32} # search, sesame, {'l' * 32} # shop")
    with pytest.raises(
        ConfigError, match=r"^RAYRANK_API_KEYS, key 2 has 6 characters: .* names without a comma"
    ) as raised:
        ApiKeys(read({"model": "m"}))
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("text", ["", " , ", "# search team"])
def test_a_variable_that_is_set_but_has_no_keys_opens_no_endpoint(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYRANK_API_KEYS", text)
    with pytest.raises(ConfigError, match="RAYRANK_API_KEYS is set but has no keys: write some, separated by commas"):
        ApiKeys(read({"model": "m"}))


def test_a_keys_file_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n# nobody yet\n")
    with pytest.raises(ConfigError, match=r"keys_file=.*/empty has no keys: write one per line"):
        api_keys(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"keys_file=.*/none cannot be read: No such file"):
        api_keys(tmp_path / "none")
