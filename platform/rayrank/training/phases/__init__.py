"""The training phases, one file each: its examples, its loss, the model it starts from and its dev metric."""
