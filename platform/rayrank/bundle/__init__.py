"""A trained model packaged for users: exported folder, model card, golden pairs, explanations."""
