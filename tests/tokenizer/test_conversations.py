"""Conversations: ids, masks, prompts, and text that looks like control tokens."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.tokenizer.chat import ChatError
from llmexp.tokenizer.folder import CHATML, read_folder
from llmexp.tokenizer.tokenizer import Tokenizer

MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
DROPS_THOUGHTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1] if not loop.last else m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

content = st.text(max_size=20) | st.sampled_from(["<|im_end|>", "\n\n x", " 4", "<|endoftext|>\n", ""])
conversation = st.lists(st.tuples(content, content), min_size=1, max_size=3).map(
    lambda turns: [
        {"role": role, "content": text}
        for pair in turns
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
)


def _with_template(folder: Path, template: str | None, **config: Any) -> Tokenizer:
    old, settings_ = read_folder(folder)
    return Tokenizer(old, {**settings_, "chat_template": template, **config})


@pytest.fixture(scope="module")
def marked(bpe_folder: Path) -> Tokenizer:
    return _with_template(bpe_folder, MARKED)


def _talk(*contents: str) -> list[dict[str, str]]:
    roles = ["user", "assistant"] * len(contents)
    return [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)]


def _counted(tokenizer: Tokenizer, messages: list[dict[str, str]]) -> str:
    ids, mask = tokenizer.encode_chat(messages)
    return tokenizer.decode([k for k, m in zip(ids, mask, strict=True) if m], skip_special=False)


def test_only_the_assistant_counts_through_the_end_of_its_turn(bpe: Tokenizer) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        *_talk("two plus two?", "four", "and one?", "five"),
    ]
    assert _counted(bpe, messages) == "four<|im_end|>five<|im_end|>"


def test_marks_of_the_template_are_followed(bpe_folder: Path) -> None:
    tokenizer = _with_template(bpe_folder, MARKED)
    assert _counted(tokenizer, _talk("hi", "a", "you", "b")) == "a<|im_end|>b<|im_end|>"


@settings(max_examples=60, deadline=None)
@given(messages=conversation)
def test_marks_and_prefixes_find_the_same_mask(
    bpe: Tokenizer, marked: Tokenizer, messages: list[dict[str, str]]
) -> None:
    assert marked.encode_chat(messages) == bpe.encode_chat(messages)


@settings(max_examples=60, deadline=None)
@given(messages=conversation)
def test_the_prompt_for_every_turn_begins_the_training_ids(
    bpe: Tokenizer, messages: list[dict[str, str]]
) -> None:
    ids, mask = bpe.encode_chat(messages)
    for k in range(1, len(messages), 2):
        prompt = bpe.encode_prompt(messages[:k])
        assert ids[: len(prompt)] == prompt
        assert mask[len(prompt)]
        assert not mask[len(prompt) - 1]


@settings(max_examples=60, deadline=None)
@given(messages=conversation)
def test_messages_cannot_write_control_tokens(bpe: Tokenizer, messages: list[dict[str, str]]) -> None:
    ids, _ = bpe.encode_chat(messages)
    special = set(bpe.special_ids.values())
    assert sum(k in special for k in ids) == 1 + 2 * len(messages)


@settings(max_examples=60, deadline=None)
@given(messages=conversation)
def test_ids_spell_the_rendered_text(bpe: Tokenizer, messages: list[dict[str, str]]) -> None:
    ids, _ = bpe.encode_chat(messages)
    assert bpe.decode(ids, skip_special=False) == bpe.render(messages)


def test_turns_end_with_the_templates_token_or_the_documents(bpe: Tokenizer) -> None:
    assert bpe.end_ids == [bpe.special_ids["<|im_end|>"], bpe.eos_id]


def test_a_turn_without_an_end_token_counts_whole(bpe_folder: Path) -> None:
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    plain += "{% if add_generation_prompt %}assistant: {% endif %}"
    assert _counted(_with_template(bpe_folder, plain), _talk("hi", "ho")) == "ho\n"


def test_a_template_that_rewrites_earlier_turns_still_gets_their_ends(bpe_folder: Path) -> None:
    tokenizer = _with_template(bpe_folder, DROPS_THOUGHTS)
    messages = _talk("a", "<think>x</think>b", "c", "<think>y</think>d")
    assert _counted(tokenizer, messages) == "b<|im_end|><think>y</think>d<|im_end|>"


def test_a_template_that_changes_the_past_is_refused(bpe_folder: Path) -> None:
    counts = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(ChatError, match="generation"):
        _with_template(bpe_folder, counts).encode_chat(_talk("a", "b"))


def test_such_a_template_can_still_write_prompts(bpe_folder: Path) -> None:
    counts = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer = _with_template(bpe_folder, counts, add_bos_token=False)
    assert tokenizer.encode_prompt(_talk("a", "b", "c")) == tokenizer.encode("3abc")


@pytest.mark.parametrize(
    "messages", [[], "hi", [{"content": "x"}], [{"role": "user", "content": 3}], [{"role": "user"}], ["x"]]
)
def test_what_is_no_conversation_is_refused(bpe: Tokenizer, messages: Any) -> None:
    with pytest.raises(ChatError):
        bpe.encode_chat(messages)


def test_a_refusal_of_the_template_is_told(bpe_folder: Path) -> None:
    tokenizer = _with_template(bpe_folder, "{{ raise_exception('no system role') }}")
    with pytest.raises(ChatError, match="no system role"):
        tokenizer.encode_chat(_talk("a", "b"))


def test_a_template_cannot_reach_into_python(bpe_folder: Path) -> None:
    tokenizer = _with_template(bpe_folder, "{{ messages.__class__.__mro__ }}{{ messages.append(1) }}")
    with pytest.raises(ChatError):
        tokenizer.render(_talk("a"))


def test_no_template_is_told(bpe_folder: Path) -> None:
    with pytest.raises(ChatError, match="chat_template"):
        _with_template(bpe_folder, None).render(_talk("a"))


def test_transformers_writes_the_same_prompt_and_conversation(bpe_folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(bpe_folder)
    ours = Tokenizer.load(bpe_folder)
    messages = _talk("What does `json.dumps` do?", "It writes JSON.", "Thanks!", "Welcome.")
    as_ids = {"tokenize": True, "return_dict": False}
    assert ours.encode_chat(messages)[0] == theirs.apply_chat_template(messages, **as_ids)
    prompt = theirs.apply_chat_template(messages[:3], add_generation_prompt=True, **as_ids)
    assert ours.encode_prompt(messages[:3]) == prompt
    assert theirs("plain text")["input_ids"] == ours.encode("plain text", bos=True)


@pytest.mark.parametrize("template", [CHATML, MARKED, DROPS_THOUGHTS, "{{ messages | tojson(indent=2) }}"])
def test_the_sandbox_renders_as_transformers_does(bpe_folder: Path, template: str) -> None:
    theirs = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = _talk("<b>é</b>\n", "x</think> y", " z")
    named = {"bos_token": "<|endoftext|>"}
    for prompt in (False, True):
        expected, _ = theirs.render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=prompt, **named
        )
        assert _with_template(bpe_folder, template).render(messages, prompt) == expected[0]


def test_a_word_split_tokenizer_masks_by_offsets() -> None:
    import json

    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers

    words = ["<unk>", "</s>", "user", "assistant", ":", "hi", "ho"]
    backend = Backend(models.WordLevel({w: k for k, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<unk>", "</s>"])
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}</s> {% endfor %}"
    template += "{% if add_generation_prompt %}assistant: {% endif %}"
    tokenizer = Tokenizer(json.loads(backend.to_str()), {"eos_token": "</s>", "chat_template": template})
    ids, mask = tokenizer.encode_chat(_talk("hi", "ho"))
    assert [words[k] for k, m in zip(ids, mask, strict=True) if m] == ["ho", "</s>"]
    with pytest.raises(ChatError, match="spells out a special token"):
        tokenizer.encode_chat(_talk("</s>", "ho"))


def test_the_fingerprint_follows_what_changes_ids(bpe_folder: Path) -> None:
    content_, config = read_folder(bpe_folder)
    first = Tokenizer(content_, config).fingerprint
    assert Tokenizer(content_, {**config, "model_max_length": 7}).fingerprint == first
    assert Tokenizer(content_, {**config, "chat_template": "x"}).fingerprint != first


def test_specs_are_plain_data() -> None:
    from llmexp.tokenizer.config import TiktokenSpec

    assert [f.name for f in dataclasses.fields(TiktokenSpec) if f.name != "_target_"] == [
        "chat_template",
        "name",
        "pattern",
    ]


def test_a_template_writes_the_same_on_any_day(bpe_folder: Path) -> None:
    template = "{{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer = _with_template(bpe_folder, template)
    assert tokenizer.render([{"role": "user", "content": "!"}]) == "26 Jul 2024!"
