"""Composition: Hydra's loader with typed nodes, stage compositions inside a pipeline, and collected mistakes.

One subclass of Hydra's loader is the whole seam: nothing of Hydra is replaced, so other Hydra
applications in the same environment are untouched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.default_element import ResultDefault
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override, open_dict

from llmexp.config.lines import HYDRA_KEYS, Line, illegal_hydra, illegal_sweep, parse_lines, strip_prefix
from llmexp.config.mistakes import CompositionError, choices, nearest
from llmexp.config.spec import Mistake, Spec
from llmexp.config.typed import Typing, field_types, leaves

SUPPORTED_HYDRA = ("1.3.", "1.4.")
if not hydra.__version__.startswith(SUPPORTED_HYDRA):
    raise ImportError(
        f"llmexp composes through Hydra's loader and knows {' and '.join(v + 'x' for v in SUPPORTED_HYDRA)}; "
        f"found hydra-core {hydra.__version__}: pip install 'hydra-core>=1.3.2,<1.5'"
    )

Validate = Callable[[DictConfig, dict[str, str]], list[Mistake]]

ROOT = "config"
"""Name of the primary config."""


@dataclasses.dataclass
class Composed:
    """One typed node, where its values came from, and which lines it took."""

    config: DictConfig
    sources: dict[str, str]
    taken: set[int]


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
        self.mistakes, self.sources = [], {}
        lines = self._lines(overrides, run_mode, validate_sweep_overrides)
        cfg, repo = self._root(lines, run_mode)
        from_experiment = parse_lines(
            cfg.experiment.overrides if cfg.experiment else [],
            self.sources.get("experiment.overrides", "experiment"),
            self.mistakes,
        )
        if from_experiment:
            lines = [line for line in from_experiment if self._legal(line, run_mode)] + lines
            experiment, cfg_sources = cfg.experiment, dict(self.sources)
            cfg, repo = self._root([x for x in lines if x.key != "experiment"], run_mode)
            cfg.experiment = experiment
            self.sources |= {k: v for k, v in cfg_sources.items() if k.startswith("experiment")}
        self._stages(cfg, repo, [x for x in lines if not x.override.is_sweep_override()])
        self._record_overrides(cfg, overrides)
        if self.validate is not None and run_mode == RunMode.RUN:
            self.mistakes += self.validate(cfg, self.sources)
        self.mistakes = [dataclasses.replace(m, path=m.path.removeprefix("stages.")) for m in self.mistakes]
        if self.mistakes:
            raise CompositionError(self.mistakes)
        return cfg

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
        groups = [x for x in mine if self._is_group(repo, x) and x.key != "stage"]
        groups = [x for x in groups if self._option_exists(repo, x)]
        hydra_lines = [x.text for x in mine if x.override.is_hydra_override()]
        try:
            cfg = self._load_configuration_impl(
                ROOT, hydra_lines + [x.text for x in groups], run_mode, validate_sweep_overrides=False
            )
        except ConfigCompositionException as error:
            self.mistakes.append(Mistake("", str(error), "see llmexp config", "the root configuration"))
            raise CompositionError(self.mistakes) from error
        values = [x for x in mine if x not in groups and not x.override.is_hydra_override()]
        self._apply(cfg, values, self.sources, "", strict=True)
        return cfg, repo

    def _is_root(self, line: Line) -> bool:
        first = line.key.split(".")[0].split("/")[0]
        return first == "hydra" or first in self._root_keys()

    def _root_keys(self) -> set[str]:
        from llmexp.config.typed import spec_class

        loaded = self.repository.load_config(ROOT)
        return set(field_types(spec_class(loaded.config["_target_"]))) - {"stages"}

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        """Hydra's own hook: the root, typed, with Hydra's node put back as Hydra made it."""
        raw, sources = self._merge(defaults, repo)
        hydra_node = raw.pop("hydra")
        typing = Typing(sources)
        cfg = typing.node(OmegaConf.to_container(raw, resolve=False), None, "")
        self.mistakes += typing.mistakes
        self.sources = sources
        with open_dict(cfg):
            cfg.hydra = hydra_node
        return cfg

    def _merge(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> tuple[DictConfig, dict[str, str]]:
        """Merge raw files in order, as Hydra does, and record for each leaf the file that set it."""
        merged, sources = OmegaConf.create(), {}
        with flag_override(merged, "no_deepcopy_set_nodes", True):
            for default in defaults:
                loaded = self._load_single_config(default, repo)
                loaded.config.pop("defaults", None)
                own = str(default.config_path) != "hydra/config" and not str(default.config_path).startswith(
                    "hydra/"
                )
                if own:
                    name = self._file_name(loaded, str(default.config_path))
                    self._refuse_hydra_keys(loaded.config, name)
                    self._refuse_nested_defaults(loaded.config, name)
                    for _, _, path in leaves(loaded.config):
                        sources[path] = name
                merged.merge_with(loaded.config)
        return merged, sources

    @staticmethod
    def _file_name(loaded: Any, config_path: str) -> str:
        base = str(loaded.path).removeprefix("file://")
        file = Path(base) / f"{config_path}.yaml" if not base.endswith((".yaml", ".yml")) else Path(base)
        try:
            return str(file.relative_to(Path.cwd()))
        except ValueError:
            return str(file)

    def _refuse_hydra_keys(self, config: DictConfig, name: str) -> None:
        node = config.get("hydra") if isinstance(config, DictConfig) else None
        for _, _, path in leaves(node, "hydra") if isinstance(node, DictConfig) else ():
            if not path.startswith(HYDRA_KEYS) and not name.endswith(f"{ROOT}.yaml"):
                self.mistakes.append(
                    Mistake(
                        path,
                        "this part of Hydra's configuration cannot be set",
                        "settable: " + ", ".join(HYDRA_KEYS),
                        name,
                    )
                )
                config.pop("hydra", None)
                return

    def _refuse_nested_defaults(self, config: DictConfig, name: str) -> None:
        for key in list(config.keys()) if isinstance(config, DictConfig) else ():
            node = config._get_node(key)
            if isinstance(node, DictConfig) and not node._is_missing() and not node._is_none():
                node.pop("defaults", None)
                self._refuse_nested_defaults(node, name)

    # --- groups ---

    @staticmethod
    def _is_group(repo: IConfigRepository, line: Line) -> bool:
        return bool(repo.group_exists(line.key)) and not isinstance(line.override.value(), dict)

    def _option_exists(self, repo: IConfigRepository, line: Line) -> bool:
        options = repo.get_group_options(line.key)
        value = line.override.value()
        unknown = [
            v
            for v in (value if isinstance(value, list) else [value])
            if v is not None and str(v) not in options
        ]
        if isinstance(value, bool) or unknown:
            shown = ", ".join(repr(v) for v in unknown or [value])
            remedy = nearest(str(unknown[0] if unknown else value), options) or f"options: {choices(options)}"
            self.mistakes.append(
                Mistake(line.key, f"there is no option {shown} in group '{line.key}'", remedy, line.source)
            )
            return False
        return True

    # --- stages ---

    def _stages(self, cfg: DictConfig, repo: IConfigRepository, lines: list[Line]) -> None:
        """Compose every stage of the pipeline and put it at ``cfg.stages.<name>``."""
        from llmexp.config.pipeline import effective_pipeline

        entries = effective_pipeline(self, cfg, repo, [x for x in lines if not self._is_root(x)])
        names = list(entries)
        plain, prefixed = [], []
        for line in lines:
            if self._is_root(line):
                continue
            first, _, rest = line.key.partition(".")
            (prefixed if first in names and rest else plain).append(line)
        taken: set[int] = set()
        for name, entry in entries.items():
            own = parse_lines(
                entry.overrides,
                self.sources.get(f"pipeline.stages.{name}.overrides", "pipeline"),
                self.mistakes,
            )
            mine = [strip_prefix(x, name) for x in prefixed if x.key.split(".")[0] == name]
            composed = self.stage(entry.stage, name, repo, own, plain, mine)
            taken |= composed.taken
            with open_dict(cfg):
                cfg.stages[name] = composed.config
            self.sources |= {f"stages.{name}.{path}": source for path, source in composed.sources.items()}
        for index, line in enumerate(plain):
            if index not in taken:
                self._nobody_has(cfg, repo, line, names)

    def _nobody_has(self, cfg: DictConfig, repo: IConfigRepository, line: Line, names: list[str]) -> None:
        known = {path.split(".", 2)[2] for _, _, path in leaves(cfg.stages, "stages") if path.count(".") >= 2}
        groups = {p.rpartition(".")[0] for p in known} | set(self._root_keys())
        first = line.key.split(".")[0]
        if repo.group_exists(line.key):
            problem = f"no stage here ({', '.join(names)}) has the group '{line.key}'"
        elif "." in line.key and first not in {p.split(".")[0] for p in known}:
            problem = f"'{first}' is neither a stage ({', '.join(names)}) nor a group of one"
        else:
            problem = f"no stage here ({', '.join(names)}) has '{line.key}'"
        candidates = known | groups | {f"{n}.{line.key.partition('.')[2]}" for n in names}
        remedy = nearest(line.key, candidates - {""}) or "llmexp config lists every group and key"
        self.mistakes.append(Mistake(line.key, problem, remedy, line.source))

    def stage(
        self,
        kind: str,
        name: str,
        repo: IConfigRepository,
        own: list[Line],
        plain: list[Line],
        prefixed: list[Line],
    ) -> Composed:
        """One stage's flat composition: its own lines, then the plain lines that it has, then those with its name."""
        config_name = f"stage/{kind}"
        base = create_defaults_list(repo, config_name, [], prepend_hydra=False, skip_missing=True)
        has_group = set(base.overrides.known_choices)
        group_plain = {
            i: x
            for i, x in enumerate(plain)
            if self._is_group(repo, x) and x.override.get_key_element().lstrip("+~") in has_group
        }
        chosen = [x for x in own if self._is_group(repo, x)] + list(group_plain.values())
        chosen += [x for x in prefixed if self._is_group(repo, x)]
        usable = [x for x in chosen if self._option_exists(repo, x) or x.override.is_delete()]
        try:
            found = create_defaults_list(
                repo, config_name, [x.override for x in usable], prepend_hydra=False, skip_missing=True
            )
        except ConfigCompositionException as error:
            self.mistakes.append(
                Mistake(
                    name, str(error).splitlines()[0], "see llmexp config", usable[-1].source if usable else ""
                )
            )
            found = base
        raw, sources = self._merge(found.defaults, repo)
        sources |= {
            x.override.get_key_element(): x.source
            for x in usable
            if x.override.get_key_element() not in sources
        }
        typing = Typing({f"stages.{name}.{k}": v for k, v in sources.items()})
        config = typing.node(OmegaConf.to_container(raw, resolve=False), None, f"stages.{name}")
        self.mistakes += typing.mistakes
        OmegaConf.set_struct(config, True)
        path = f"stages.{name}"
        self._apply(config, [x for x in own if not self._is_group(repo, x)], sources, path, strict=True)
        values = {i: x for i, x in enumerate(plain) if i not in group_plain and not self._is_group(repo, x)}
        taken = {i for i, x in values.items() if self._apply(config, [x], sources, path, strict=False)}
        self._apply(config, [x for x in prefixed if not self._is_group(repo, x)], sources, path, strict=True)
        return Composed(config, sources, taken | set(group_plain))

    # --- values ---

    def _apply(
        self, config: DictConfig, lines: list[Line], sources: dict[str, str], path: str, *, strict: bool
    ) -> bool:
        """Apply value overrides to a typed node; with ``strict=False`` a key that it lacks is left alone."""
        from llmexp.config.values import apply_value

        done = False
        for line in lines:
            done |= apply_value(config, line, sources, path, self.mistakes, strict=strict)
        return done


def spec_of(node: DictConfig) -> type[Spec] | None:
    """The spec class of a typed node."""
    kind = OmegaConf.get_type(node)
    return kind if isinstance(kind, type) and issubclass(kind, Spec) else None


__all__ = ["CachingConfigRepository", "Composed", "SpecLoader", "spec_of"]
