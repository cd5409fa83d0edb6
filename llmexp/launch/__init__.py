"""Launchers: where a stage runs, signals, status and logs."""
