"""The flow, one file a stage; a stage is `run(config, store) -> Artifact` and meets the others on storage only."""
