"""Composition: Hydra's loader with typed nodes, stage compositions inside a pipeline, and collected mistakes.

One subclass of Hydra's loader is the whole seam: nothing of Hydra is replaced, so other Hydra
applications in the same environment are untouched.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.default_element import ResultDefault
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from llmexp.config.files import (
    DEFAULT_PIPELINE,
    ROOT,
    drop_nested_defaults,
    file_name,
    is_hydras,
    raw,
    refused_hydra_file,
    refused_hydra_keys,
    unreadable,
)
from llmexp.config.given import Entry
from llmexp.config.lines import (
    COMMAND,
    EXPERIMENT,
    PIPELINE,
    Line,
    illegal_hydra,
    illegal_sweep,
    parse_lines,
    strip_prefix,
    wrong_choice,
)
from llmexp.config.mistakes import CompositionError, choices, nearest
from llmexp.config.pipeline import Pipeline, effective_pipeline
from llmexp.config.spec import Mistake
from llmexp.config.typed import Typing, anchor_references, field_types, leaves, source_of, spec_class
from llmexp.config.unclaimed import unclaimed
from llmexp.config.values import apply_value

SUPPORTED_HYDRA = ("1.3.", "1.4.")
if not hydra.__version__.startswith(SUPPORTED_HYDRA):
    raise ImportError(
        f"llmexp composes through Hydra's loader and knows {' and '.join(v + 'x' for v in SUPPORTED_HYDRA)}; "
        f"found hydra-core {hydra.__version__}: pip install 'hydra-core>=1.3.2,<1.5'"
    )

Validate = Callable[[DictConfig, dict[str, str]], list[Mistake]]


@dataclasses.dataclass
class Composed:
    """One typed node, where its values came from, and which lines it took."""

    config: DictConfig
    sources: dict[str, str]
    taken: set[int]


@dataclasses.dataclass(frozen=True)
class Aimed:
    """A line as one stage takes it."""

    line: Line
    index: int | None
    """Of a plain line: its place among all lines; the stage may lack what it sets."""

    @property
    def strict(self) -> bool:
        """Whether it was written for this stage, which must then have what it sets."""
        return self.index is None


class SpecLoader(ConfigLoaderImpl):  # type: ignore[misc]
    """Loads a composition whose every node is a typed spec.

    Raises:
        CompositionError: from ``load_configuration``, with all mistakes of the composition.
    """

    def __init__(self, config_search_path: Any, validate: Validate | None = None) -> None:
        """``validate`` finds what is wrong with a whole composed tree; without it, values may be missing."""
        super().__init__(config_search_path)
        self.validate = validate
        self.mistakes: list[Mistake] = []
        self.sources: dict[str, str] = {}

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Compose the root and every stage; ``cfg.stages`` holds the stages by name."""
        del config_name, from_shell  # there is one root, and no message depends on the shell
        self.mistakes, self.sources = [], {}
        lines = self._lines(overrides, run_mode, validate_sweep_overrides)
        try:
            cfg, repo, lines = self._with_experiment(lines, run_mode)
            self._stages(cfg, repo, [x for x in lines if not x.override.is_sweep_override()])
        except CompositionError:
            raise
        except (YAMLError, UnicodeDecodeError, HydraException, OmegaConfBaseException) as error:
            # A file that cannot be read at all: nothing after it can be composed.
            raise CompositionError([*self.mistakes, unreadable(error)]) from error
        self._record_overrides(cfg, overrides)
        if self.validate is not None and run_mode == RunMode.RUN:
            told = {m.path.removeprefix("stages.") for m in self.mistakes}
            self.mistakes += [m for m in self.validate(cfg, self.sources) if m.path not in told]
        self.mistakes = [
            dataclasses.replace(m, path=m.path.removeprefix("stages."), source=m.source or "its default")
            for m in self.mistakes
        ]
        if self.mistakes:
            raise CompositionError(self.mistakes)
        return cfg

    def _with_experiment(
        self, lines: list[Line], run_mode: RunMode
    ) -> tuple[DictConfig, IConfigRepository, list[Line]]:
        """The root, its repository, and all lines: the experiment's first, then the command's."""
        before = len(self.mistakes)
        cfg, repo = self._root(lines, run_mode)
        if not cfg.experiment or not cfg.experiment.overrides:
            return cfg, repo, lines
        # The root is composed again, with the experiment's lines: what is wrong with it is told then.
        again = [m for m in self.mistakes[before:] if m.path.startswith("experiment")]
        self.mistakes[before:] = again
        where = source_of(self.sources, "experiment.overrides.0") or "the experiment"
        own = parse_lines(cfg.experiment.overrides, where, self.mistakes, EXPERIMENT)
        own = [line for line in own if self._legal(line, run_mode)]
        for line in own:
            if line.key.split(".")[0] == "experiment":
                wrong = "an experiment cannot change the experiment"
                self.mistakes.append(Mistake("experiment.overrides", wrong, f"remove {line.text}", where))
        lines = [line for line in own if line.key.split(".")[0] != "experiment"] + lines
        experiment, choice = cfg.experiment, cfg.hydra.runtime.choices.get("experiment")
        sources = {k: v for k, v in self.sources.items() if k.startswith("experiment")}
        cfg, repo = self._root([x for x in lines if x.key.split(".")[0] != "experiment"], run_mode)
        cfg.experiment = experiment
        cfg.hydra.runtime.choices.experiment = choice
        self.sources |= sources
        return cfg, repo, lines

    # --- lines ---

    def _lines(self, overrides: list[str], run_mode: RunMode, validate: bool) -> list[Line]:
        lines = parse_lines(overrides, None, self.mistakes)
        return [line for line in lines if self._legal(line, run_mode if validate else RunMode.MULTIRUN)]

    def _legal(self, line: Line, run_mode: RunMode) -> bool:
        mistake = illegal_hydra(line)
        if mistake is None and run_mode == RunMode.RUN:
            mistake = illegal_sweep(line)
        if mistake is not None:
            self.mistakes.append(mistake)
        return mistake is None

    def _record_overrides(self, cfg: DictConfig, overrides: list[str]) -> None:
        """Hydra's record holds the command's own words, whichever stage took them."""
        parsed = [x.override for x in parse_lines(overrides, None, [])]
        own = [o for o in parsed if not o.is_hydra_override()]
        with open_dict(cfg.hydra):
            cfg.hydra.overrides.task = [o.input_line for o in own]
            names = cfg.hydra.job.config.override_dirname
            cfg.hydra.job.override_dirname = get_overrides_dirname(
                overrides=own, kv_sep=names.kv_sep, item_sep=names.item_sep, exclude_keys=names.exclude_keys
            )

    # --- root ---

    def _root(self, lines: list[Line], run_mode: RunMode) -> tuple[DictConfig, IConfigRepository]:
        """The root composition, from the lines that belong to it."""
        mine = [x for x in lines if not x.override.is_sweep_override() and self._is_root(x)]
        _, repo = self._parse_overrides_and_create_caching_repo(
            ROOT, [x.text for x in mine if x.key == "hydra.searchpath"]
        )
        hydra_lines = [x for x in mine if x.override.is_hydra_override()]
        groups = [x for x in mine if self._is_group(repo, x) and x.key != "stage"]
        usable = [x for x in groups if self._is_usable(repo, x)]
        cfg = self._load_configuration_impl(
            ROOT, [x.text for x in hydra_lines + usable], run_mode, validate_sweep_overrides=False
        )
        self._apply(cfg, [x for x in mine if x not in groups + hydra_lines], self.sources, "", strict=True)
        return cfg, repo

    def _is_root(self, line: Line) -> bool:
        first = line.key.split(".")[0].split("/")[0]
        return first == "hydra" or first in self._root_keys

    @functools.cached_property
    def _root_keys(self) -> set[str]:
        cls = spec_class(str(raw(self.repository, ROOT)["_target_"]))
        return set(field_types(cls)) - {"stages"}

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        """Hydra's own hook: the root, typed, with Hydra's node put back as Hydra made it."""
        merged, sources = self._merge(defaults, repo)
        hydra_node = merged.pop("hydra")
        typing = Typing(sources)
        cfg: DictConfig = typing.node(OmegaConf.to_container(merged, resolve=False), None, "")
        self.mistakes += typing.mistakes
        self.sources = sources
        with open_dict(cfg):
            cfg.hydra = hydra_node
        return cfg

    def _merge(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> tuple[DictConfig, dict[str, str]]:
        """Merge raw files in order, as Hydra does, and record for each leaf the file that set it."""
        merged = OmegaConf.create()
        sources: dict[str, str] = {}
        with flag_override(merged, "no_deepcopy_set_nodes", True):
            for default in defaults:
                path = str(default.config_path)
                refused = list(refused_hydra_file(repo, path)) if is_hydras(path) else []
                self.mistakes += refused
                if refused:
                    continue
                config: Any = self._load_single_config(default, repo).config
                config.pop("defaults", None)
                if not is_hydras(path):
                    name = file_name(repo, path)
                    self.mistakes += refused_hydra_keys(config, name)
                    drop_nested_defaults(config)
                    for _, _, leaf in leaves(config):
                        sources[leaf] = name
                merged.merge_with(config)
        return merged, sources

    # --- groups ---

    @staticmethod
    def _is_group(repo: IConfigRepository, line: Line) -> bool:
        return bool(repo.group_exists(line.key)) and not isinstance(line.override.value(), dict)

    def _is_usable(self, repo: IConfigRepository, line: Line, prefix: str = "") -> bool:
        """Whether a line chooses an option that exists; otherwise it becomes a mistake."""
        wrong = wrong_choice(line, repo.get_group_options(line.key))
        if wrong is not None:
            self.mistakes.append(wrong.under(prefix))
        return wrong is None

    # --- stages ---

    def _stages(self, cfg: DictConfig, repo: IConfigRepository, lines: list[Line]) -> None:
        """Compose every stage of the pipeline and put it at ``cfg.stages.<name>``."""
        lines = [line for line in lines if not self._is_root(line)]
        pipeline = effective_pipeline(self, cfg, repo, lines)
        taken: set[int] = set()
        known = {}
        for name, entry in pipeline.entries.items():
            composed = self._stage(entry, repo, lines_of(entry, pipeline))
            taken |= composed.taken
            with open_dict(cfg):
                cfg.stages[name] = composed.config
            self.sources |= {f"stages.{name}.{path}": source for path, source in composed.sources.items()}
            known[name] = {path for _, _, path in leaves(composed.config)}
        types = repo.get_group_options("stage")
        for index, line in enumerate(pipeline.lines):
            plain = line.key.partition(".")[0] not in pipeline.entries
            # What an experiment says of stages that are spared is no mistake of the person who gives inputs.
            if plain and index not in taken and not (line.layer == EXPERIMENT and pipeline.spared):
                group = self._is_group(repo, line)
                self.mistakes.append(unclaimed(line, pipeline, known, is_group=group, stage_types=types))

    def _stage(self, entry: Entry, repo: IConfigRepository, lines: list[Aimed]) -> Composed:
        """One stage's flat composition."""
        config_name = f"stage/{entry.stage}"
        default = create_defaults_list(repo, config_name, [], prepend_hydra=False, skip_missing=True)
        has = set(default.overrides.known_choices)
        choosing = [x for x in lines if self._is_group(repo, x.line)]
        mine = [x for x in choosing if x.line.key in has]
        for lost in [x for x in choosing if x.line.key not in has and x.strict]:
            wrong = f"stage '{entry.name}' ({entry.stage}) has no group '{lost.line.key}'"
            remedy = nearest(lost.line.key, has) or f"it has: {choices(has) or 'none'}"
            self.mistakes.append(Mistake(f"{entry.name}.{lost.line.key}", wrong, remedy, lost.line.source))
        usable = [x.line for x in mine if self._is_usable(repo, x.line, entry.name if x.strict else "")]
        found = create_defaults_list(
            repo, config_name, [x.override for x in usable], prepend_hydra=False, skip_missing=True
        )
        merged, sources = self._merge(found.defaults, repo)
        merged.pop(DEFAULT_PIPELINE, None)
        sources |= {x.key: x.source for x in usable if x.key not in sources}
        path = f"stages.{entry.name}"
        typing = Typing({f"{path}.{k}": v for k, v in sources.items()})
        config = typing.node(OmegaConf.to_container(merged, resolve=False), None, path)
        self.mistakes += typing.mistakes
        OmegaConf.set_struct(config, True)
        taken = {x.index for x in mine if x.index is not None}
        for aimed in (x for x in lines if x not in choosing):
            strict = aimed.strict and not _rechosen(aimed.line, usable)
            if self._apply(config, [aimed.line], sources, path, strict=strict) and aimed.index is not None:
                taken.add(aimed.index)
        anchor_references(config, path)
        return Composed(config, sources, taken)

    def _apply(
        self, config: DictConfig, lines: list[Line], sources: dict[str, str], path: str, *, strict: bool
    ) -> bool:
        """Apply value overrides to a typed node; with ``strict=False`` a key that it lacks is left alone."""
        done = False
        for line in lines:
            done |= apply_value(config, line, sources, path, self.mistakes, strict=strict)
        return done


def lines_of(entry: Entry, pipeline: Pipeline) -> list[Aimed]:
    """A stage's own lines, then the experiment's, then the command's; in each, plain ones first."""
    found = [Aimed(line, None) for line in entry.own]
    for layer in (PIPELINE, EXPERIMENT, COMMAND):
        named = []
        for index, line in enumerate(pipeline.lines):
            if line.layer == layer:
                first, _, rest = line.key.partition(".")
                if first == entry.name and rest:
                    named.append(Aimed(strip_prefix(line, entry.name), None))
                elif first not in pipeline.entries:
                    found.append(Aimed(line, index))
        found += named
    return found


def _rechosen(line: Line, usable: list[Line]) -> bool:
    """Whether a later layer chose another option than the one that a value was written for."""
    group = line.key.partition(".")[0]
    return any(x.key == group and x.layer > line.layer for x in usable)
