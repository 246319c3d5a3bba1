"""The names of the application's deployments, which Ray Serve's status and handles go by."""

RANKER = "Ranker"
"""The first model; its user_config names the exported folder."""

SEARCH = "Search"
"""The first stage."""

INGRESS = "Api"
"""The HTTP ingress."""


def further_ranker(name: str) -> str:
    """Return the deployment's name of a further model; it becomes the name of a log file, so it has no slash."""
    return f"{RANKER}-{name.replace('/', '--')}"


def is_ranker(deployment: str) -> bool:
    """Whether a deployment has a model."""
    return deployment == RANKER or deployment.startswith(f"{RANKER}-")
