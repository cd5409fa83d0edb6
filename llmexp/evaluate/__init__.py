"""How good a model is: held-out loss, bits per byte, calibration, exact match, sample generations."""
