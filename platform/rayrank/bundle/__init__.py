"""What a user is handed: the exported folder, its card, golden scores and explanations."""
