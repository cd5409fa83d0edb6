"""The programs beside the tests are modules for them too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
