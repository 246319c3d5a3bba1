"""How good a run is, how sure that is, and how it is shown: pure functions of tables and arrays."""
