"""Where it is written which model answers: in a running Serve, behind its REST API, or in a config file for one."""

import copy
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import yaml

from rayrank.core.errors import ConfigError, StorageError

RANKER = "Ranker"
"""The deployment with the model; its user_config names the folder."""

ANYWHERE = ("0.0.0.0", "::")

SWAP_S = 600
"""A replica loads a model in seconds; many of them, some at a time, in minutes."""

Settings = dict[str, Any]


@dataclass(frozen=True)
class Live:
    """The settings of the model that answers now, and where."""

    settings: Settings
    endpoint: str

    @property
    def model(self) -> str:
        return str(self.settings.get("model", ""))


class Target(Protocol):
    """Something that says which model answers."""

    def live(self) -> Live:
        """Return what answers now."""

    def swap(self, settings: Settings) -> str:
        """Let these settings be the model's from now on, and return a sentence on what that means."""


def open_target(place: str) -> Target:
    """Return what --to names: the URL of Serve's REST API, or a Serve config file."""
    return RunningServe(place) if "://" in place else ConfigFile(Path(place).expanduser())


class RunningServe:
    """Serve behind the REST API of Ray's dashboard; tokens are read from where Ray's own commands read them."""

    def __init__(self, url: str) -> None:
        # With all of Ray behind it, so not for those who edit a file.
        from ray.dashboard.modules.serve.sdk import ServeSubmissionClient

        self._url = url
        try:
            self._client = ServeSubmissionClient(url)
        except Exception as error:  # Ray has one for every way in which a dashboard may not answer
            raise self._unusable(error) from None

    def live(self) -> Live:
        details = self._details()
        name, deployment = self._ranker(details)
        options = details.get("http_options") or {}
        host = options.get("host") or "127.0.0.1"
        # Who listens everywhere listens where the dashboard does.
        host = (urlsplit(self._url).hostname or host) if host in ANYWHERE else host
        prefix = details["applications"][name].get("route_prefix") or ""
        endpoint = f"http://{host}:{options.get('port') or 8000}{prefix.rstrip('/')}"
        return Live(deployment["deployment_config"].get("user_config") or {}, endpoint)

    def swap(self, settings: Settings) -> str:
        """Change the user_config and nothing else: Serve then keeps every replica and every request."""
        details = self._details()
        name, _ = self._ranker(details)
        applications = [
            app["deployed_app_config"] for app in details["applications"].values() if app.get("deployed_app_config")
        ]
        before = copy.deepcopy(applications)
        config = next((app for app in applications if app.get("name", "default") == name), None)
        if config is None:
            raise ConfigError(
                f"--to {self._url}: the application {name} came from serve run, which keeps no config to change; "
                f"start it with serve deploy."
            )
        deployments = config.setdefault("deployments", [])
        ranker = next((entry for entry in deployments if entry["name"] == RANKER), None)
        if ranker is None:
            deployments.append(ranker := {"name": RANKER})
        ranker["user_config"] = settings
        self._deploy(details, applications)
        try:
            self._wait(name, settings)
        except ConfigError as error:
            self._deploy(details, before)
            raise ConfigError(f"{error} What answered before is back.") from None
        return "all replicas answer with it"

    def _deploy(self, details: dict[str, Any], applications: list[dict[str, Any]]) -> None:
        kept = {key: details[key] for key in ("proxy_location", "http_options", "grpc_options") if details.get(key)}
        try:
            self._client.deploy_applications({**kept, "applications": applications})
        except Exception as error:
            raise self._unusable(error) from None

    def _wait(self, name: str, settings: Settings) -> None:
        deadline = time.monotonic() + SWAP_S
        while time.monotonic() < deadline:
            app = self._details()["applications"][name]
            deployment = app["deployments"].get(RANKER) or {}
            arrived = (deployment.get("deployment_config") or {}).get("user_config") == settings
            if arrived and app["status"] == "RUNNING" and deployment["status"] == "HEALTHY":
                return
            # Before they have arrived, what is wrong is wrong with the model before.
            failed = app["status"] == "DEPLOY_FAILED" or deployment.get("status") in ("UNHEALTHY", "DEPLOY_FAILED")
            if arrived and failed:
                reason = (deployment.get("message") or app["message"]).strip().split("\n")[-1]
                raise ConfigError(f"{settings['model']} does not start: {reason}; see the replica's log.")
            time.sleep(0.5)
        raise ConfigError(f"{settings['model']} has not started after {SWAP_S} seconds: see the replicas' logs.")

    def _ranker(self, details: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the name of the application with the model, and what is known of the deployment."""
        found = [(name, app["deployments"][RANKER]) for name, app in details["applications"].items()
                 if RANKER in app["deployments"]]  # fmt: skip
        if len(found) != 1:
            raise ConfigError(
                f"--to {self._url} has {len(found)} applications with a deployment {RANKER}, and one is needed: deploy "
                f"serve.app:build there once."
            )
        return found[0]

    def _details(self) -> dict[str, Any]:
        try:
            return self._client.get_serve_details()
        except Exception as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> ConfigError:
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        return ConfigError(
            f"--to {self._url} cannot be used: {reason}; name the dashboard's URL, and set RAY_AUTH_MODE=token if it "
            f"asks for one."
        )


class ConfigFile:
    """A YAML file for serve deploy; only the model in an application's args is written anew, comments stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._text = path.read_text(encoding="utf-8")
            content = yaml.safe_load(self._text)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
            raise ConfigError(f"--to {path} cannot be read: {reason}; name a Serve config file, or a URL.") from None
        applications = content.get("applications") if isinstance(content, dict) else None
        found = [app for app in applications or [] if "model" in (app.get("args") or {})]
        if len(found) != 1:
            raise ConfigError(
                f"--to {path} has {len(found)} applications with a model, and one is needed: give it args: "
                f"{{model: DIR}}."
            )
        (self._app,), self._options = found, content.get("http_options") or {}

    def live(self) -> Live:
        host = self._options.get("host") or "127.0.0.1"
        host = "127.0.0.1" if host in ANYWHERE else host
        prefix = (self._app.get("route_prefix") or "").rstrip("/")
        return Live(self._app["args"], f"http://{host}:{self._options.get('port') or 8000}{prefix}")

    def swap(self, settings: Settings) -> str:
        text = self._text
        nodes = self._nodes()
        key, value = nodes["model"]
        before = f"previous: {json.dumps(settings['previous'], ensure_ascii=False)}"
        if "previous" in nodes:
            old_key, old = nodes["previous"]
            changes = [(old_key.start_mark.index, old.end_mark.index, before)]
        else:
            # In front of the model, so that a comment behind it stays with it.
            gap = "\n" + " " * key.start_mark.column if self._is_block(key) else ", "
            changes = [(key.start_mark.index, key.start_mark.index, before + gap)]
        changes.append(
            (value.start_mark.index, value.end_mark.index, json.dumps(settings["model"], ensure_ascii=False))
        )
        for start, end, new in sorted(changes, reverse=True):
            text = text[:start] + new + text[end:]
        draft = self._path.with_name(f".{self._path.name}.draft")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            raise StorageError(f"--to {self._path} cannot be written: {error.strerror}; make it writable.") from None
        return f"serve deploy {self._path} makes it answer"

    def _is_block(self, key: Any) -> bool:
        """Return whether a key stands on a line of its own."""
        return not self._text[: key.start_mark.index].rpartition("\n")[2].strip(" -")

    def _nodes(self) -> dict[str, tuple[Any, Any]]:
        """Return the args of the application with the model: where each key and its value stand in the text."""
        for app in _entries(yaml.compose(self._text))["applications"][1].value:
            if "args" in _entries(app) and "model" in (nodes := _entries(_entries(app)["args"][1])):
                return nodes
        raise AssertionError


def _entries(node: Any) -> dict[str, tuple[Any, Any]]:
    return {key.value: (key, value) for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
