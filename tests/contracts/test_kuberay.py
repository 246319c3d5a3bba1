"""The manifests for Kubernetes: KubeRay's fields, the project's own settings, and numbers that fit together.

KubeRay refuses or drops fields that it does not know. SCHEMA lists the fields that its `ray.io/v1` types have (version
1.6) as far as the manifests use them; a type in capitals is another entry.
"""

import importlib
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from rayrank.core.overrides import build
from rayrank.jobs.entry import parser
from rayrank.serve.config import read
from tests.contracts.test_layout import pinned

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kuberay"
MANIFESTS = {"RayCluster": "raycluster.yaml", "RayJob": "rayjob.yaml", "RayService": "rayservice.yaml"}

Fields = dict[str, Any]
SCHEMA: dict[str, tuple[Fields, set[str]]] = {
    "RayCluster": (
        {
            "rayVersion": str, "enableInTreeAutoscaling": bool, "autoscalerOptions": "AutoscalerOptions",
            "authOptions": "AuthOptions", "headGroupSpec": "HeadGroup", "workerGroupSpecs": ["WorkerGroup"],
        },
        {"headGroupSpec"},
    ),
    "AutoscalerOptions": (
        {"idleTimeoutSeconds": int, "upscalingMode": {"Default", "Aggressive", "Conservative"}},
        set(),
    ),
    "AuthOptions": ({"mode": {"token", "disabled"}, "secretName": str}, set()),
    "HeadGroup": ({"rayStartParams": "Strings", "template": "PodTemplate", "serviceType": str}, {"template"}),
    "WorkerGroup": (
        {
            "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, "rayStartParams": "Strings",
            "template": "PodTemplate", "idleTimeoutSeconds": int, "numOfHosts": int,
        },
        {"groupName", "minReplicas", "maxReplicas", "template"},
    ),
    "RayJob": (
        {
            "entrypoint": str, "submissionMode": {"K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"},
            "backoffLimit": int, "shutdownAfterJobFinishes": bool, "ttlSecondsAfterFinished": int,
            "rayClusterSpec": "RayCluster", "runtimeEnvYAML": str, "activeDeadlineSeconds": int,
        },
        {"entrypoint", "rayClusterSpec"},
    ),
    "RayService": (
        {"upgradeStrategy": "UpgradeStrategy", "serveConfigV2": str, "rayClusterConfig": "RayCluster"},
        {"rayClusterConfig"},
    ),
    "UpgradeStrategy": (
        {
            "type": {"NewCluster", "NewClusterWithIncrementalUpgrade", "None"},
            "clusterUpgradeOptions": "ClusterUpgradeOptions",
        },
        set(),
    ),
    "ClusterUpgradeOptions": (
        {"maxSurgePercent": int, "stepSizePercent": int, "intervalSeconds": int, "gatewayClassName": str},
        {"stepSizePercent", "intervalSeconds", "gatewayClassName"},
    ),
    "PodTemplate": ({"metadata": dict, "spec": "Pod"}, {"spec"}),
    "Pod": (
        {
            "containers": ["Container"], "volumes": ["Volume"], "terminationGracePeriodSeconds": int,
            "securityContext": "PodSecurity",
        },
        {"containers", "securityContext"},  # without fsGroup the images' user could not write to a volume
    ),
    "PodSecurity": ({"fsGroup": int, "runAsUser": int}, {"fsGroup"}),
    "Container": (
        {
            "name": str, "image": str, "resources": "Resources", "ports": ["Port"], "volumeMounts": ["Mount"],
            "env": list,
        },
        {"name", "image", "resources"},
    ),
    "Resources": ({"requests": "Strings", "limits": "Strings"}, {"requests", "limits"}),
    "Port": ({"name": str, "containerPort": int}, {"containerPort"}),
    "Mount": ({"name": str, "mountPath": str, "readOnly": bool}, {"name", "mountPath"}),
    "Volume": ({"name": str, "persistentVolumeClaim": "Claim", "emptyDir": dict}, {"name"}),
    "Claim": ({"claimName": str, "readOnly": bool}, {"claimName"}),
}  # fmt: skip


def faults(value: Any, kind: Any, place: str) -> list[str]:
    """Return what in a part of a manifest KubeRay would not accept."""
    if kind == "Strings":
        wrong = [key for key, text in value.items() if not isinstance(text, str)]
        return [f"{place}.{key} is not a string" for key in wrong]
    if isinstance(kind, list):
        return [found for number, each in enumerate(value) for found in faults(each, kind[0], f"{place}[{number}]")]
    if isinstance(kind, set):
        return [] if value in kind else [f"{place} is {value}"]
    if isinstance(kind, type):
        return [] if type(value) is kind else [f"{place} is not of type {kind.__name__}"]
    fields, required = SCHEMA[kind]
    found = [f"{place}.{key} is missing" for key in required - value.keys()]
    found += [f"{place}.{key} is unknown" for key in value.keys() - fields.keys()]
    return found + [
        fault for key in value.keys() & fields.keys() for fault in faults(value[key], fields[key], f"{place}.{key}")
    ]


def manifest(kind: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((FOLDER / MANIFESTS[kind]).read_text(encoding="utf-8"))
    return content


def cluster(kind: str) -> dict[str, Any]:
    spec = manifest(kind)["spec"]
    found: dict[str, Any] = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    return found


@pytest.mark.parametrize("kind", MANIFESTS)
def test_kuberay_knows_every_field(kind: str) -> None:
    written = manifest(kind)
    assert (written["apiVersion"], written["kind"]) == ("ray.io/v1", kind)
    assert written.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert faults(written["spec"], kind, "spec") == []


def test_a_misspelt_or_missing_field_is_noticed() -> None:
    spec = manifest("RayService")["spec"]
    spec["rayClusterConfig"]["workerGroupSpecs"][0]["maxReplica"] = 3
    del spec["upgradeStrategy"]["clusterUpgradeOptions"]["stepSizePercent"]
    spec["rayClusterConfig"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    assert sorted(faults(spec, "RayService", "spec")) == [
        "spec.rayClusterConfig.headGroupSpec.rayStartParams.num-cpus is not a string",
        "spec.rayClusterConfig.workerGroupSpecs[0].maxReplica is unknown",
        "spec.upgradeStrategy.clusterUpgradeOptions.stepSizePercent is missing",
    ]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_clusters_have_the_tested_ray_tokens_shared_storage_and_limits(kind: str) -> None:
    written = cluster(kind)
    assert written["rayVersion"] == pinned()["ray"]
    assert written["authOptions"] == {"mode": "token"}
    assert written["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    claim = yaml.safe_load((FOLDER / "storage.yaml").read_text(encoding="utf-8"))
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for group in (written["headGroupSpec"], *written["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert pod["containers"][0]["volumeMounts"] == [{"name": "storage", "mountPath": "/storage"}]
    for group in written["workerGroupSpecs"]:
        assert 0 <= group["minReplicas"] < group["maxReplicas"]
        (container,) = group["template"]["spec"]["containers"]
        assert ("nvidia.com/gpu" in container["resources"]["limits"]) == (container["image"] == "rayrank:cuda")


def test_the_jobs_command_is_one_that_the_job_accepts_and_fits_the_workers() -> None:
    pipeline, export = (shlex.split(command) for command in manifest("RayJob")["spec"]["entrypoint"].split("&&"))
    for command, name in ((pipeline, "run_pipeline"), (export, "export")):
        assert command[:3] == ["python", "-m", f"rayrank.jobs.{name}"]
        assert Path(importlib.import_module("rayrank.jobs").__path__[0], f"{name}.py").is_file()
    arguments = parser("").parse_args(pipeline[3:])
    exported, (_, output) = parser("").parse_known_args(export[3:])
    assert (exported.preset, exported.dataset, exported.storage) == (
        arguments.preset, arguments.dataset, arguments.storage,
    )  # fmt: skip
    service = yaml.safe_load(manifest("RayService")["spec"]["serveConfigV2"])
    assert output == service["applications"][0]["args"]["model"]
    assert arguments.storage.startswith("/storage/")
    resources = build(arguments.preset, None, arguments.set).resources
    limits = [
        group["template"]["spec"]["containers"][0]["resources"]["limits"]
        for group in cluster("RayJob")["workerGroupSpecs"]
    ]
    cores = max(int(limit["cpu"]) for limit in limits)
    assert 0 < (resources.index_threads or 0) <= cores
    assert 0 < (resources.search_threads or 0) <= cores
    assert any("nvidia.com/gpu" in limit for limit in limits)
    assert (resources.train_workers, resources.train_gpus) == (1, 1)


def test_ray_serve_and_the_endpoint_accept_the_services_settings() -> None:
    deployed = ServeDeploySchema.model_validate(yaml.safe_load(manifest("RayService")["spec"]["serveConfigV2"]))
    (application,) = deployed.applications
    assert application.import_path == "rayrank.serve.app:build"
    assert callable(importlib.import_module("rayrank.serve.app").build)
    config = read(application.args)
    (group,) = cluster("RayService")["workerGroupSpecs"]
    assert config.resources.cpus < int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert config.scaling.max < group["maxReplicas"]
    head = cluster("RayService")["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert deployed.http_options.port in [port["containerPort"] for port in head["ports"]]
