"""``llmexp chat``: turns in, replies out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from models_made_by_hand import always

from llmexp.cli.chat import Conversation
from llmexp.cli.models import find_model, open_model
from llmexp.cli.places import Places
from llmexp.config.mistakes import UserError
from llmexp.rollout.config import SamplingSpec
from llmexp.stage.runs import PipelineRecord, StageLink, new_folder
from llmexp.store.store import Store

SHORT = ("--max-new-tokens", 8)


@pytest.fixture
def conversation(trained) -> Conversation:
    places = Places(trained / "outputs", Store([trained / "outputs" / "store"]))
    model = open_model(find_model("last", places), "cpu")
    return Conversation(model, SamplingSpec(max_new_tokens=16), seed=0)


def say(conversation: Conversation, text: str) -> str:
    conversation.hear(text)
    return "".join(conversation.reply())


def test_each_line_of_the_input_is_a_turn(inside):
    said = inside("chat", "last", *SHORT, "--temperature", 0, stdin="hello\n\nand a list\n")
    assert said.code == 0
    assert said.out.count("\n") >= 2
    assert not said.out.startswith(">")


def test_the_start_says_what_the_model_is_and_that_it_is_small(inside):
    said = inside("chat", "last", *SHORT, stdin="")
    assert "/sft: " in said.err
    assert "parameters, context of 256 tokens" in said.err
    assert "trained: pretrain on notes (" in said.err
    assert "; then sft on chats.jsonl (" in said.err
    assert "small" in said.err
    assert said.out == ""


def test_a_model_that_saw_no_conversation_is_introduced_as_such(inside):
    assert "never on conversations" in inside("chat", "last/pretrain", stdin="").err
    assert "never on conversations" not in inside("chat", "last", stdin="").err


def test_last_is_the_newest_run_that_has_a_model(trained, tmp_path):
    runs = shutil.copytree(trained / "outputs" / "runs", tmp_path / "outputs" / "runs").parent / "runs"
    places = Places(tmp_path / "outputs", Store([trained / "outputs" / "store"]))
    before = find_model("last", places)
    corpus = StageLink(stage="collect", kind="corpus", fingerprint="0" * 64, status="done")
    newer = PipelineRecord(
        title="collect", command="", created=time.time(), overrides=[], stages={"collect": corpus}
    )
    newer.write(new_folder(runs, "collect"))
    assert find_model("last", places) == before


def test_last_without_any_model_says_so(tmp_path):
    with pytest.raises(UserError, match=r"no run in .* has a model yet"):
        find_model("last", Places(tmp_path, Store([tmp_path / "store"])))


def test_after_quit_nothing_is_answered(inside):
    assert inside("chat", "last", *SHORT, stdin="/quit\nhello\n").out == ""


def test_a_word_that_is_no_command_is_told_and_not_said(inside):
    said = inside("chat", "last", *SHORT, stdin="/lost\n")
    assert "there is no /lost" in said.err
    assert said.out == ""


def test_the_model_hears_what_was_said_before(conversation):
    say(conversation, "the first")
    conversation.hear("the second")
    assert [turn["role"] for turn in conversation.turns] == ["user", "assistant", "user"]
    with_history = conversation._ids(conversation.turns)
    conversation.reset()
    conversation.hear("the second")
    assert len(conversation._ids(conversation.turns)) < len(with_history)


def test_the_systems_words_come_first_and_survive_a_reset(conversation):
    conversation.system = "be brief"
    say(conversation, "hello")
    conversation.reset()
    conversation.hear("hello")
    text = conversation.model.tokenizer.decode(conversation._ids(conversation.turns), skip_special=False)
    assert text.index("be brief") < text.index("hello")


def test_the_oldest_turns_go_when_the_context_is_full(conversation):
    dropped = 0
    for number in range(8):
        dropped += conversation.hear(f"turn number {number} of the conversation with the model")
        "".join(conversation.reply())
    assert dropped > 0
    assert conversation.turns[0]["role"] == "user"
    assert conversation.turns[-2]["content"].startswith("turn number 7")


def test_a_turn_that_is_longer_than_the_context_is_refused_and_forgotten(conversation):
    say(conversation, "hello")
    before = list(conversation.turns)
    with pytest.raises(UserError, match=r"that is \d+ tokens; this model has room for \d+"):
        conversation.hear("the model " * 200)
    assert conversation.turns == before


def test_a_reply_that_is_stopped_stays_as_far_as_it_came(conversation):
    conversation.hear("hello")
    reply = conversation.reply()
    first = next(reply)
    reply.close()
    assert conversation.turns[-1] == {"role": "assistant", "content": first}


def test_the_same_seed_gives_the_same_conversation(inside):
    one, two = (inside("chat", "last", *SHORT, "--seed", 5, stdin="a\nb\n").out for _ in range(2))
    assert one == two


def test_a_model_without_a_chat_template_cannot_chat(inside, tmp_path):
    import json

    folder = always(ord("x"), tmp_path / "mute")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    said = inside("chat", folder, stdin="hello\n")
    assert said.code == 2
    assert "use `llmexp generate" in said.err


def test_escapes_that_a_model_writes_are_shown_and_not_sent(inside, tmp_path):
    said = inside("chat", always(0x1B, tmp_path / "escape"), *SHORT, stdin="hello\n")
    assert said.out == "␛" * 8 + "\n"


def test_ctrl_c_stops_a_reply_and_the_conversation_goes_on(trained, tmp_path):
    folder = always(ord("x"), tmp_path / "endless")
    words = [sys.executable, "-m", "llmexp", "chat", str(folder), "--max-new-tokens", "1000000"]
    spec = (folder / "model.json").read_text().replace('"max_seq_len": 128', '"max_seq_len": 20000')
    (folder / "model.json").write_text(spec)
    chat = subprocess.Popen(
        words, cwd=trained, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ, text=True
    )
    assert chat.stdin is not None
    assert chat.stdout is not None
    limit = threading.Timer(60, chat.kill)
    limit.start()
    try:
        for _ in range(2):
            chat.stdin.write("hello\n")
            chat.stdin.flush()
            assert chat.stdout.read(5) == "xxxxx"
            chat.send_signal(signal.SIGINT)
            assert chat.stdout.readline().strip("x") == " …\n"
        chat.stdin.close()
        assert chat.wait() == 0
    finally:
        limit.cancel()
        chat.kill()
        chat.stdout.close()
        chat.wait()


def test_a_closed_standard_input_has_nothing_to_say(trained):
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", "chat", "last"],
        cwd=trained,
        preexec_fn=lambda: os.close(0),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
