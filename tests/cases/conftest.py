"""Cases that are told as commands are run as commands; their helpers lie with the end-to-end tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))
