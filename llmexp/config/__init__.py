"""The configuration mechanism: typed specs, composition, checks and where each value came from."""
