"""Chat templates compiled in Jinja's sandbox, with the filters and functions that published templates use.

Templates come from other people's repositories: they see plain data and can neither change it nor reach
into Python.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

GENERATION_START, GENERATION_END = "\uf8f2", "\uf8f3"
"""Private-use characters around what a template marks by ``{% generation %}``."""

TODAY = datetime(2024, 7, 26)
"""The day that templates are told, always: the same conversations become the same shards on any day.
It is the one that Llama 3's template takes where it is told none."""


class Generation(Extension):
    """The block ``{% generation %} … {% endgeneration %}``: what the assistant wrote."""

    tags = {"generation"}

    def parse(self, parser: Any) -> jinja2.nodes.Node:
        """Turn the block into a call that puts marks around its content."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: Callable[[], str]) -> str:
        return f"{GENERATION_START}{caller()}{GENERATION_END}"


@functools.lru_cache(maxsize=32)
def compiled(template: str) -> jinja2.Template:
    """A template, ready to render.

    Raises:
        jinja2.TemplateSyntaxError: it is no template.
    """
    # Templates are written for these two settings, which `transformers` fixed for them.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment.from_string(template)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON as it is; Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(format: str) -> str:
    return TODAY.strftime(format)
