"""``llmexp check``: every mistake of a composition; opens no data and no network."""

from __future__ import annotations

import json
import sys

from llmexp.cli.compose import compose, parser
from llmexp.config.mistakes import CompositionError
from llmexp.track.masking import masked, without_credentials

EXAMPLES = """  llmexp check experiment=quickstart
  llmexp check model=llama3_8b parallel=ddp
  llmexp check data=text_files data.path=my_notes/ model=tiny --json"""


def main(args: list[str]) -> int:
    """Exit code 0 when nothing is wrong, 2 with all mistakes otherwise."""
    made = parser("check", "Find every mistake of a composition. Runs nothing, reads no data.", EXAMPLES)
    made.add_argument("--json", action="store_true", help="mistakes as JSON")
    given = made.parse_intermixed_args(args)
    try:
        composition, _ = compose(given.overrides, given.config_dir)
    except CompositionError as error:
        if not given.json:
            raise
        told = masked([vars(m) for m in error.mistakes], without_credentials)
        json.dump({"mistakes": told}, sys.stdout, indent=1)
        return 2
    if given.json:
        json.dump({"mistakes": [], "stages": list(composition.nodes)}, sys.stdout, indent=1)
    else:
        sys.stdout.write(f"no mistakes: {composition.title} ({' -> '.join(composition.nodes)})\n")
    return 0
