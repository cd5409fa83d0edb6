"""The whole life at debug size: raw text to an exported model, and everything cached the second time."""

from __future__ import annotations

import json
import resource
import sqlite3
from pathlib import Path

import pytest
from commands import artifacts, built, must, runs, stages

QUICKSTART = ["experiment=quickstart_debug"]
ALL = [
    "collect", "curate", "bpe", "tokens", "pretrain", "chats", "chat_tokens", "sft", "prompts", "grpo",
    "evaluate", "export",
]  # fmt: skip

pytestmark = pytest.mark.slow


def mlflow_runs(folder: Path) -> list[tuple[str, str]]:
    """(name, status) of every MLflow run."""
    with sqlite3.connect(folder / "outputs" / "mlflow.db") as database:
        found = database.execute("SELECT name, status FROM runs ORDER BY start_time").fetchall()
    database.close()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the quickstart ran twice."""
    folder = tmp_path_factory.mktemp("quickstart")
    first = must(folder, *QUICKSTART)
    (folder / "first.txt").write_text(first.stdout)
    (folder / "progress.txt").write_text(first.stderr)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    (folder / "second.txt").write_text(must(folder, *QUICKSTART).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (folder / "second_seconds.txt").write_text(str(seconds))
    return folder


def test_every_stage_runs_once(folder):
    first, _second = runs(folder)
    assert built(first) == ALL


def test_progress_tells_a_policys_reward_and_a_models_loss(folder):
    lines = (folder / "progress.txt").read_text().splitlines()
    (grpo,) = (line for line in lines if line.startswith("grpo: 4/4 steps"))
    (sft,) = (line for line in lines if line.startswith("sft: 8/8 steps"))
    assert " · reward " in grpo
    assert " loss " not in grpo
    assert " · loss " in sft


def test_the_second_time_every_stage_is_found_in_the_store(folder):
    _first, second = runs(folder)
    assert built(second) == []


def test_the_second_time_takes_less_than_15_seconds(folder):
    # Of the processor: what else the machine does is not the command's.
    assert float((folder / "second_seconds.txt").read_text()) < 15


def test_a_stage_found_in_the_store_makes_no_mlflow_run(folder):
    found = mlflow_runs(folder)
    assert len(found) == 1 + len(ALL) + 1
    assert {status for _, status in found} == {"FINISHED"}


def test_the_report_shows_curves_and_lineage(folder):
    for run_dir in runs(folder):
        page = (run_dir / "report.html").read_text()
        for figure in ("loss_pretrain", "loss_sft", "reward_grpo", "bits_per_byte", "lineage"):
            assert (run_dir / "figures" / f"{figure}.svg").stat().st_size > 0
        assert page.count('src="data:image/svg+xml;base64,') >= 5


def test_evaluation_has_a_row_for_each_model(folder):
    (report,) = artifacts(folder, "report")
    table = json.loads((report / "evaluation.json").read_text())["table"]
    assert list(table) == ["initial", "pretrain", "sft", "grpo"]
    assert all(row["bits_per_byte"] > 0 and 0 <= row["exact_match"] <= 1 for row in table.values())


def test_transformers_continues_text_as_the_trained_model_does(folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from llmexp.model.io import load

    (export,) = artifacts(folder, "export")
    theirs = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(export)
    ours, _ = load(Path(stages(runs(folder)[0])["grpo"]["path"]))
    ids = tokenizer("Return a list of", return_tensors="pt").input_ids
    want = theirs.generate(
        ids, attention_mask=torch.ones_like(ids), min_new_tokens=20, max_new_tokens=20, do_sample=False
    )
    for _ in range(20):
        with torch.no_grad():
            logits = ours(ids)[:, -1]
            logits[:, theirs.generation_config.eos_token_id] = -torch.inf  # as min_new_tokens does
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    assert tokenizer.decode(ids[0]) == tokenizer.decode(want[0])


def test_the_closing_words_name_what_to_do_next(folder):
    for name in ("first.txt", "second.txt"):
        said = (folder / name).read_text()
        assert "llmexp chat" in said
        assert "llmexp report" in said
        assert "mlflow ui" in said
