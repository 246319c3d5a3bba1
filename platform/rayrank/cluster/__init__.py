"""Work on a Ray cluster: the connection, and files that a pool of actors makes."""
