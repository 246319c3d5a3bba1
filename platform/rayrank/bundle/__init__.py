"""A trained model packaged for users: exported folder, model card, golden pairs, explanations."""

import rayrank.models  # noqa: F401  # before transformers' models, to keep scikit-learn out
