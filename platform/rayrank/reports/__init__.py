"""Tables, plots and findings for people."""
