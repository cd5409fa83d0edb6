"""Single-device parts of a decoder: attention, feed-forward, norm, position, cache, dropout."""
