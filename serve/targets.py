"""Targets of a promotion: a running Ray Serve, through its REST API, or a Serve config file."""

import copy
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import yaml

from rayrank.core.errors import ConfigError, StorageError
from rayrank.serve.config import check_names
from rayrank.serve.deployments import RANKER, is_ranker
from rayrank.serve.live_endpoint import Endpoint

ALL_INTERFACES = ("0.0.0.0", "::")

STARTUP_S = 600
"""Seconds that all replicas together may take to load a model; one replica takes seconds."""

ANSWERS_PER_REPLICA = 3
"""Answers for each replica that are looked at, since one cannot choose the replica that answers."""

Settings = dict[str, Any]


@dataclass(frozen=True)
class LiveModel:
    """The settings of the model that serves requests now, and the URL of its endpoint."""

    settings: Settings
    endpoint: str
    served_as: str = ""
    """The name that requests choose this model with, or that --replace names; empty if it is the only one."""

    @property
    def model(self) -> str:
        return str(self.settings.get("model", ""))


class Target(Protocol):
    """A place that stores which model is served."""

    def live(self) -> LiveModel:
        """Return the model that is served now."""

    def replace_model(self, settings: Settings) -> str:
        """Replace the settings of the model, and return a sentence about the effect."""


def open_target(place: str, replaced: str = "") -> Target:
    """Return the target that --to names: the URL of Serve's REST API, or a Serve config file.

    `replaced` is the name of the model to replace, which is needed if there are several."""
    if "://" in place:
        return RunningServe(place, replaced)
    return ConfigFile(Path(place).expanduser(), replaced)


def _chosen(place: str, replaced: str, names: Sequence[str]) -> str:
    """Return the name of the model to replace: the one that was asked for, or the only one."""
    if replaced in names or (len(names) == 1 and not replaced):
        return replaced or names[0]
    advice = f"there is no model {replaced}" if replaced else f"it has {len(names)} models"
    raise ConfigError(f"--to {place}: {advice}; name the one to replace with --replace {' or '.join(names)}.")


class RunningServe:
    """Ray Serve, through the REST API of Ray's dashboard. Ray's client finds the auth token where Ray's commands do."""

    def __init__(self, url: str, replaced: str) -> None:
        # Imported here because it loads Ray, which a promotion in a config file does not need.
        from ray.dashboard.modules.serve.sdk import ServeSubmissionClient

        self._url, self._replaced = url, replaced
        try:
            self._client = ServeSubmissionClient(url)
        except Exception as error:  # Ray raises many types of exceptions if the dashboard does not answer
            raise self._unusable(error) from None

    def live(self) -> LiveModel:
        details = self._details()
        name, rankers, chosen = self._rankers(details)
        options = details.get("http_options") or {}
        host = options.get("host") or "127.0.0.1"
        # An endpoint on all interfaces can be reached under the dashboard's host name.
        host = (urlsplit(self._url).hostname or host) if host in ALL_INTERFACES else host
        prefix = details["applications"][name].get("route_prefix") or ""
        endpoint = f"http://{host}:{options.get('port') or 8000}{prefix.rstrip('/')}"
        served_as = _name(rankers[chosen]) if len(rankers) > 1 else self._replaced
        return LiveModel(_user_config(rankers[chosen]), endpoint, served_as)

    def replace_model(self, settings: Settings) -> str:
        """Change only the user_config: Serve then restarts no replica and drops no request."""
        details = self._details()
        name, _, chosen = self._rankers(details)
        applications = [
            app["deployed_app_config"] for app in details["applications"].values() if app.get("deployed_app_config")
        ]
        before = copy.deepcopy(applications)
        config = next((app for app in applications if app.get("name", "default") == name), None)
        if config is None:
            raise ConfigError(
                f"--to {self._url}: the application {name} was started by rayrank serve or serve run, which keep no "
                f"config to change; start it with serve deploy."
            )
        deployments = config.setdefault("deployments", [])
        ranker = next((entry for entry in deployments if entry["name"] == chosen), None)
        if ranker is None:
            deployments.append(ranker := {"name": chosen})
        ranker["user_config"] = settings
        self._deploy(details, applications)
        try:
            self._wait(name, chosen, settings)
        except ConfigError as error:
            self._deploy(details, before)
            raise ConfigError(f"{error} The previous model was restored.") from None
        return "all replicas serve it"

    def _deploy(self, details: dict[str, Any], applications: list[dict[str, Any]]) -> None:
        kept = {key: details[key] for key in ("proxy_location", "http_options", "grpc_options") if details.get(key)}
        try:
            self._client.deploy_applications({**kept, "applications": applications})
        except Exception as error:
            raise self._unusable(error) from None

    def _wait(self, name: str, ranker: str, settings: Settings) -> None:
        deadline = time.monotonic() + STARTUP_S
        while time.monotonic() < deadline:
            app = self._details()["applications"][name]
            deployment = app["deployments"].get(ranker) or {}
            arrived = (deployment.get("deployment_config") or {}).get("user_config") == settings
            if arrived and app["status"] == "RUNNING" and deployment["status"] == "HEALTHY":
                return self._check_loaded(settings["model"], len(deployment.get("replicas") or ()))
            # Before the settings have arrived, a failure is one of the previous model.
            failed = app["status"] == "DEPLOY_FAILED" or deployment.get("status") in ("UNHEALTHY", "DEPLOY_FAILED")
            if arrived and failed:
                reason = (deployment.get("message") or app["message"]).strip().split("\n")[-1]
                raise ConfigError(f"{settings['model']} does not start: {reason}; see the replica's log.")
            time.sleep(0.5)
        raise ConfigError(f"{settings['model']} has not started after {STARTUP_S} seconds: see the replicas' logs.")

    def _check_loaded(self, model: str, num_replicas: int) -> None:
        """Raise an error if replicas have kept the previous model because they could not load the new one."""
        live = self.live()
        endpoint = Endpoint(live.endpoint, live.served_as)
        try:
            # Each request reaches any one of the replicas.
            found = [endpoint.load_error() for _ in range(ANSWERS_PER_REPLICA * max(1, num_replicas))]
        except ConfigError:
            return  # rayrank promote compares scores under the URL that it was given
        if reason := next(filter(None, found), None):
            raise ConfigError(f"{model} does not start: {reason}; the replicas kept the previous model all the while.")

    def _rankers(self, details: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
        """Return the name of the application with the models, the details of the models' deployments by deployment,
        and the deployment of the model to replace."""
        found = [name for name, app in details["applications"].items() if RANKER in app["deployments"]]
        if len(found) != 1:
            raise ConfigError(
                f"--to {self._url} has {len(found)} applications with a deployment {RANKER} instead of one: deploy "
                f"rayrank.serve.app:build there once."
            )
        deployments = details["applications"][found[0]]["deployments"]
        rankers = {RANKER: deployments[RANKER]} | {name: each for name, each in deployments.items() if is_ranker(name)}
        named = {_name(each): deployment for deployment, each in rankers.items()}
        return found[0], rankers, named[_chosen(self._url, self._replaced, list(named))]

    def _details(self) -> dict[str, Any]:
        try:
            return self._client.get_serve_details()
        except Exception as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> ConfigError:
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        return ConfigError(
            f"--to {self._url} cannot be used: {reason}; name the dashboard's URL, and set RAY_AUTH_MODE=token if it "
            f"requires one."
        )


def _user_config(deployment: dict[str, Any]) -> Settings:
    return deployment["deployment_config"].get("user_config") or {}


def _name(deployment: dict[str, Any]) -> str:
    return str(_user_config(deployment).get("name", ""))


class ConfigFile:
    """A YAML file for serve deploy. Only the model in an application's args is rewritten; comments are kept."""

    def __init__(self, path: Path, replaced: str) -> None:
        self._path, self._replaced = path, replaced
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
                f"--to {path} has {len(found)} applications with a model instead of one: give one application args: "
                f"{{model: DIR}}."
            )
        (self._app,), self._options = found, content.get("http_options") or {}
        arguments = self._app["args"]
        check_names(arguments)
        first = arguments.get("name") or Path(arguments["model"]).name
        self._models: dict[str, Any] = arguments.get("models") or {}
        self._names = [first, *self._models]
        chosen = _chosen(str(path), replaced, self._names)
        self._further = "" if chosen == first else chosen
        """The name of the further model to replace; empty for the first model."""

    def live(self) -> LiveModel:
        host = self._options.get("host") or "127.0.0.1"
        host = "127.0.0.1" if host in ALL_INTERFACES else host
        prefix = (self._app.get("route_prefix") or "").rstrip("/")
        settings = {key: value for key, value in self._app["args"].items() if key != "models"}
        if self._further:
            own = self._models[self._further]
            settings = {**settings, "previous": "", **(own if isinstance(own, dict) else {"model": own})}
        served_as = self._further or (self._names[0] if len(self._names) > 1 else self._replaced)
        return LiveModel(settings, f"http://{host}:{self._options.get('port') or 8000}{prefix}", served_as)

    def replace_model(self, settings: Settings) -> str:
        text, nodes = self._text, self._nodes()
        values = {"previous": settings["previous"]}
        if self._further:
            _, entry = _entries(nodes["models"][1])[self._further]
            nodes = _entries(entry)
        elif len(self._names) > 1 and "name" not in nodes:
            # Requests choose the model with this name, which would change with the folder.
            values["name"] = self._names[0]
        if not nodes:
            # The entry of a further model is only a folder.
            both = f"{{previous: {_quoted(settings['previous'])}, model: {_quoted(settings['model'])}}}"
            return self._write(text[: entry.start_mark.index] + both + text[entry.end_mark.index :])
        key, value = nodes["model"]
        changes = [(value.start_mark.index, value.end_mark.index, _quoted(settings["model"]))]
        # A new key is inserted before the model, so that a comment after the model stays on its line.
        gap = "\n" + " " * key.start_mark.column if self._is_block(key) else ", "
        for name, new in values.items():
            place = key.start_mark.index, key.start_mark.index, f"{name}: {_quoted(new)}{gap}"
            if name in nodes:
                place = nodes[name][1].start_mark.index, nodes[name][1].end_mark.index, _quoted(new)
            changes.append(place)
        for start, end, new in sorted(changes, reverse=True):
            text = text[:start] + new + text[end:]
        return self._write(text)

    def _write(self, text: str) -> str:
        draft = self._path.with_name(f".{self._path.name}.draft")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            raise StorageError(f"--to {self._path} cannot be written: {error.strerror}; make it writable.") from None
        return f"run serve deploy {self._path} to serve it"

    def _is_block(self, key: Any) -> bool:
        """Return whether a key is the first on its line."""
        return not self._text[: key.start_mark.index].rpartition("\n")[2].strip(" -")

    def _nodes(self) -> dict[str, tuple[Any, Any]]:
        """Return the YAML nodes of each key and its value in the args of the application with the model."""
        for app in _entries(yaml.compose(self._text))["applications"][1].value:
            if "args" in _entries(app) and "model" in (nodes := _entries(_entries(app)["args"][1])):
                return nodes
        raise AssertionError


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _entries(node: Any) -> dict[str, tuple[Any, Any]]:
    return {key.value: (key, value) for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
