"""Work on a Ray cluster: the connection, workers that start quickly, and files that a pool of actors makes."""
