"""Train, tune and serve passage re-rankers on Ray."""
