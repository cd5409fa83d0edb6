"""The decoder built from parts, its spec, its initial weights, and its files on disk."""
