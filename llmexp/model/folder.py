"""Model folders: ours (``model.json``) and Hugging Face's (``config.json``). Imports no torch.

Only JSON and safetensors are read; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from llmexp.config.spec import MISSING, as_data, settings
from llmexp.model.config import ModelSpec
from llmexp.model.families.base import ConfigReader, Family, ModelFolderError, family

SPEC_FILE, WEIGHTS_FILE = "model.json", "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+|gpt2[\w-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def find_folder(path: str | Path) -> Path:
    """The folder that ``path`` names: itself, or the local copy of a Hub model.

    A Hub name is looked for in the local cache first and downloaded when it is not there
    (``HF_HUB_OFFLINE=1`` forbids that).

    Raises:
        ModelFolderError: there is no such folder or Hub model.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if not is_hub_name(str(path)):
        raise ModelFolderError(f"no model folder at {path}")
    cached = cached_folder(str(path))
    if cached is not None:
        return cached
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(path), allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelFolderError(
            f"{path} is neither a folder nor a Hub model in the local cache, and the Hub gave: {error}"
        ) from error


def is_hub_name(reference: str) -> bool:
    """Whether this can name a model on the Hub: a path below a folder that is here is a mistyped path."""
    return _HUB_NAME.fullmatch(reference) is not None and not Path(reference.split("/")[0]).exists()


def cached_folder(name: str) -> Path | None:
    """The local copy of a Hub model, without asking the Hub; None where there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def read_spec(path: str | Path) -> ModelSpec:
    """The spec of the model in a folder of either kind, from its JSON head alone.

    Raises:
        ModelFolderError: no model there, or one with a feature that the decoder lacks.
    """
    folder = find_folder(path)
    if (folder / SPEC_FILE).is_file():
        return _own_spec(folder)
    return _foreign(folder)[0]


def read_family(folder: Path) -> Family | None:
    """The family of a Hugging Face folder; None for a folder of ours."""
    return None if (folder / SPEC_FILE).is_file() else _foreign(folder)[1]


def write_spec(spec: ModelSpec, folder: Path) -> None:
    """Write ``model.json``."""
    (folder / SPEC_FILE).write_text(json.dumps(as_data(spec), indent=2) + "\n")


def weight_files(folder: Path) -> dict[str, Path]:
    """The safetensors file of each tensor, from the index; ``{"": file}`` where one file holds all.

    Raises:
        ModelFolderError: no safetensors, or a shard is missing.
    """
    index = folder / _INDEX_FILE
    if index.is_file():
        places = {name: folder / file for name, file in _read_json(index)["weight_map"].items()}
        outside = sorted({str(file) for file in places.values() if not _is_below(file, folder)})
        if outside:
            raise ModelFolderError(f"{index}: names files outside its folder: {', '.join(outside)}")
        missing = sorted({file.name for file in places.values() if not file.is_file()})
        if missing:
            raise ModelFolderError(f"{index}: names files that are not there: {', '.join(missing)}")
        return places
    if (folder / WEIGHTS_FILE).is_file():
        return {"": folder / WEIGHTS_FILE}
    pickles = sorted(file.name for suffix in ("*.bin", "*.pt", "*.pth") for file in folder.glob(suffix))
    if pickles:
        raise ModelFolderError(
            f"{folder}: holds pickled weights ({pickles[0]}), which can run code "
            "when loaded and are never read; "
            "convert them where you trust them: "
            "transformers' AutoModelForCausalLM.from_pretrained(...).save_pretrained(...) writes safetensors"
        )
    raise ModelFolderError(f"{folder}: no {WEIGHTS_FILE} and no {_INDEX_FILE}")


def _is_below(file: Path, folder: Path) -> bool:
    """Whether a name stays in the folder as written; links, as the Hub's cache has them, may lead out."""
    return Path(os.path.normpath(file)).is_relative_to(os.path.normpath(folder))


def _own_spec(folder: Path) -> ModelSpec:
    data = _read_json(folder / SPEC_FILE)
    data.pop("_target_", None)
    unknown = sorted(data.keys() - {f.name for f in settings(ModelSpec)})
    if unknown:
        raise ModelFolderError(
            f"{folder / SPEC_FILE}: unknown fields {', '.join(unknown)}; written by a newer llmexp?"
        )
    missing = [f.name for f in settings(ModelSpec) if f.default is MISSING and f.name not in data]
    if missing:
        raise ModelFolderError(f"{folder / SPEC_FILE}: lacks {', '.join(missing)}")
    return ModelSpec(**data)


def _foreign(folder: Path) -> tuple[ModelSpec, Family]:
    file = folder / "config.json"
    if not file.is_file():
        raise ModelFolderError(f"{folder}: no {SPEC_FILE} and no config.json, so no model folder")
    config = _read_json(file)
    reader = ConfigReader(config, str(file))
    found = family(config.get("model_type", ""))
    return found.spec_from(reader), found


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFolderError(f"{file}: not JSON ({error})") from error
