"""``llmexp report [RUN]``: write a run's report again and say where it is."""

from __future__ import annotations

import sys
from pathlib import Path

from llmexp.cli.places import places_of, the_run, verb_parser
from llmexp.cli.subject import linked
from llmexp.cli.terminal import print_json
from llmexp.stage.runs import PAGE, PipelineRecord

EXAMPLES = """  llmexp report
  llmexp report last --open
  llmexp report 12-00-00-quickstart --json"""


def main(args: list[str]) -> int:
    """Write the report and print its path."""
    made = verb_parser(
        "report",
        "Write the report of a run again from its folder and artifacts, and print its path.",
        EXAMPLES,
    )
    made.add_argument(
        "run",
        nargs="?",
        default="last",
        help="a folder, a name that `status` shows or a part of it, or last (default)",
    )
    made.add_argument("--open", action="store_true", help="open it in the browser")
    given = made.parse_args(args)
    places = places_of(given)
    run_dir = the_run(given.run, places)
    from llmexp.stage.reporting import report_data, write

    path, gone = run_dir / PAGE, _gone(run_dir)
    if gone and path.is_file():
        sys.stderr.write(f"left as it is: no artifact of {', '.join(gone)} is in the store any more\n")
    else:
        path = write(run_dir, report_data(run_dir, places.runs))[0]
    if given.json:
        print_json({"run": str(run_dir), "report": str(path)})
    else:
        sys.stdout.write(f"{path}\n")
    if given.open and not _opened(path.absolute().as_uri()):
        sys.stderr.write(
            "no browser can be opened here: copy the file, one self-contained page, to where one is\n"
        )
    return 0


def _gone(run_dir: Path) -> list[str]:
    """The stages that were done and whose artifacts are not there now."""
    stages = PipelineRecord.read(run_dir).stages
    return [name for name, link in stages.items() if link.status == "done" and linked(link) is None]


def _opened(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)
