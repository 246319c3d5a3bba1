"""How many replicas an endpoint needs: a load generator, measured curves, and a plan from them."""
