"""``llmexp [run]``: compose, find work in progress, and only then give Hydra the run folder."""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any

from hydra.core.utils import run_job
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from llmexp.cli.compose import Session, parser, session
from llmexp.config.mistakes import UserError

EXAMPLES = """  llmexp experiment=quickstart
  llmexp data=text_files data.path=my_notes/ model=tiny trainer=short
  llmexp experiment=quickstart pretrain.trainer.max_steps=2000 sft.optimizer.lr=1e-3
  llmexp stage=sft inputs.model=last data=chat_jsonl data.path=chats.jsonl
  llmexp -m optimizer.lr=1e-3,3e-3 model=tiny
  llmexp experiment=quickstart --cfg job
  eval "$(llmexp --shell-completion install=bash)\""""


def arguments() -> argparse.ArgumentParser:
    """The verb's flags: Hydra's own, where they make sense, and ours."""
    made = parser("run", "Compose a pipeline and run it. What is in the store is not built again.", EXAMPLES)
    made.add_argument("--cfg", "-c", choices=["job", "hydra", "all"], help="print the composition instead")
    made.add_argument("--package", "-p", help="the part of the composition to print")
    made.add_argument("--resolve", action="store_true", help="with --cfg: resolve interpolations")
    made.add_argument(
        "--multirun", "-m", action="store_true", help="sweep over a=1,2 choice(...) range(...) glob(...)"
    )
    made.add_argument(
        "--info",
        "-i",
        nargs="?",
        const="all",
        choices=["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"],
        help="Hydra's information on the composition",
    )
    made.add_argument(
        "--shell-completion", "-sc", action="store_true", help="install=SHELL, uninstall=SHELL or query=SHELL"
    )
    made.add_argument("--quiet", "-q", action="store_true", help="no progress")
    return made


def main(args: list[str]) -> int:
    """Run, sweep, or print; exit code as documented."""
    warnings.filterwarnings("ignore", message=".*searchpath.*is not available.*")
    given = arguments().parse_intermixed_args(args)
    if given.shell_completion:
        return _shell_completion(given)
    if given.info is not None:
        session(given.config_dir, complete=False).hydra.show_info(given.info, "config", given.overrides)
        return 0
    if given.cfg is not None:
        return _show(given)
    if given.multirun:
        return _sweep(given)
    opened = session(given.config_dir, to_run=True)
    return _run(opened, opened.compose(given.overrides), given)


def _shell_completion(given: argparse.Namespace) -> int:
    """``install=SHELL`` and ``uninstall=SHELL`` print shell code, ``query=SHELL`` what may follow."""
    word = given.overrides[0] if len(given.overrides) == 1 else ""
    what, _, shell = word.partition("=")
    if what not in ("install", "uninstall", "query") or shell not in ("bash", "zsh", "fish"):
        raise UserError(
            "--shell-completion takes install=SHELL, uninstall=SHELL or query=SHELL: bash, zsh, fish"
        )
    if what == "query":
        from llmexp.cli.completion import query

        query(shell)
    else:
        session(given.config_dir, complete=False).hydra.shell_completion("config", given.overrides)
    return 0


def _show(given: argparse.Namespace) -> int:
    """Print the composed tree as Hydra does, environment values masked when they are resolved."""
    opened = session(given.config_dir, complete=False)
    cfg = opened.compose(given.overrides)
    from llmexp.config.validate import secret_values
    from llmexp.track.masking import mask_of

    mask = mask_of(secret_values(cfg))
    tree = opened.hydra.get_sanitized_cfg(cfg, given.cfg)
    node: Any = tree
    if given.package not in (None, "_global_"):
        # The part of a stage may be named as in overrides, with the stage's name in front.
        node = OmegaConf.select(tree, given.package)
        node = OmegaConf.select(tree, f"stages.{given.package}") if node is None else node
    if node is None:
        parts = ", ".join(map(str, [*tree, *tree.get("stages", ())]))
        raise UserError(f"--package {given.package}: there is no such part. Parts: {parts}")
    text = OmegaConf.to_yaml(node, resolve=given.resolve) if OmegaConf.is_config(node) else f"{node}\n"
    sys.stdout.write(mask(text))
    return 0


def _sweep(given: argparse.Namespace) -> int:
    from hydra.core.utils import JobStatus

    opened = session(given.config_dir, to_run=True)
    try:
        batches = opened.hydra.multirun(
            config_name="config",
            task_function=lambda _: None,
            overrides=given.overrides,
            with_log_configuration=False,
        )
    except PermissionError as error:  # of the sweep's own folder: a job's is told by the job
        where = f"{error.filename} may not be written to"
        raise UserError(f"{where}: set paths.outputs (or hydra.sweep.dir) to a folder that may") from error
    failed = sum(job.status == JobStatus.FAILED for batch in batches or [] for job in batch)
    return 1 if failed else 0


def _run(opened: Session, cfg: DictConfig, given: argparse.Namespace) -> int:
    from llmexp.launch.pipeline import run_folder, run_pipeline
    from llmexp.stage.graph import composition_of
    from llmexp.stage.locate import locate
    from llmexp.store.store import Store

    composition = composition_of(cfg, opened.loader.sources)
    paths = composition.root.paths
    store, runs = Store(paths.roots), paths.runs
    if composition.root.launcher.dry_run:
        locate(composition, store, runs)
        return _dry_run(composition, store)
    hydra_lines: Any = OmegaConf.to_container(cfg.hydra.overrides.hydra, resolve=False)
    explicit = any(line.lstrip("+").startswith("hydra.run.dir=") for line in hydra_lines)
    with run_folder(composition, store, runs, Path(str(cfg.hydra.run.dir)) if explicit else None) as folder:
        with open_dict(cfg.hydra):
            cfg.hydra.run.dir = str(folder)
        _hide_passwords(cfg)
        words = shlex.join(["llmexp", *sys.argv[1:]])
        result = run_job(
            task_function=lambda _: run_pipeline(
                composition, store, folder, command=words, quiet=given.quiet
            ),
            config=cfg,
            job_dir_key="hydra.run.dir",
            job_subdir_key=None,
            configure_logging=False,
            hydra_context=HydraContext(config_loader=opened.loader, callbacks=_callbacks()),
        )
    if result.status.name == "FAILED":
        raise result._return_value
    return int(result.return_value)


def _hide_passwords(cfg: DictConfig) -> None:
    """From here on Hydra alone reads the tree, to write it down: no address keeps its password."""
    from llmexp.config.typed import leaves, written
    from llmexp.track.masking import without_credentials

    for holder, key, _ in list(leaves(cfg)):
        text = written(holder, key)
        if isinstance(text, str) and without_credentials(text) != text:
            with read_write(holder):
                holder[key] = without_credentials(text)


def _callbacks() -> Any:
    """No callbacks: naming them in a config is refused, since they could name any callable."""
    from hydra._internal.callbacks import Callbacks

    return Callbacks()


def _dry_run(composition: Any, store: Any) -> int:
    for node in composition.nodes.values():
        found = store.find(node.spec.makes, node.fingerprint)
        words = "in the store" if found else "would run"
        sys.stdout.write(f"{node.name:<14} {node.kind:<16} {node.fingerprint[:12]}  {words}\n")
    return 0
