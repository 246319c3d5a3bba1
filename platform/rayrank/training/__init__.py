"""Training: one loop for all phases, its data, losses and log, and the adapter to Ray Train."""
