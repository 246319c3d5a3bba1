"""The names of the application's deployments, which Ray Serve's status and handles go by."""

RANKER = "Ranker"
"""The model; its user_config names the exported folder."""

SEARCH = "Search"
"""The first stage."""

INGRESS = "Api"
"""The HTTP ingress."""
