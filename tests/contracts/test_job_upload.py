"""What `ray job submit --working-dir .` uploads: the code, and nothing that a job does not need."""

import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest
from ray._private.runtime_env.packaging import create_package

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("reads_gitignore", [True, False])
def test_models_and_tests_are_not_uploaded_and_the_linked_folders_are(tmp_path: Path, reads_gitignore: bool) -> None:
    checkout, package = tmp_path / "checkout", tmp_path / "package.zip"
    for folder in ("jobs", "platform", "serve", "tune"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, checkout / folder, symlinks=True, ignore=ignored)
    for ignores in (".gitignore", ".rayignore"):
        shutil.copy(ROOT / ignores, checkout)
    for needless in ("models/new/model.safetensors", "tests/test_x.py", "docs/x.png", "benchmarks/x.py"):
        (checkout / needless).parent.mkdir(parents=True)
        (checkout / needless).write_text("needless")

    # RAY_RUNTIME_ENV_IGNORE_GITIGNORE=1 makes Ray read .rayignore only.
    create_package(str(checkout), package, include_gitignore=reads_gitignore)

    files = {name for name in ZipFile(package).namelist() if not name.endswith("/")}
    assert {name.split("/")[0] for name in files if "/" in name} == {"jobs", "platform", "serve", "tune"}
    assert {"platform/rayrank/jobs/export.py", "platform/rayrank/serve/page/index.html"} <= files
