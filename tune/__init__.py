"""Search spaces and sweeps over the configuration's dotted keys."""
