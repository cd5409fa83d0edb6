"""Masking of e-mail addresses, IP addresses and telephone numbers."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from llmexp.corpus.curation.steps import Step
from llmexp.corpus.records import Record, map_text

# Top-level domains are letters, or the encoded form of others; a name that ends like a file is one.
_EMAIL = re.compile(
    r"(?<![\w.+@/-])[A-Za-z0-9](?:[A-Za-z0-9.!#$%&'*+?^_`{|}~-]{0,62}[A-Za-z0-9_+-])?"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}(?P<top>[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{1,59})"
    r"(?![\w@-]|\.\w)"
)
# What stands behind an icon@2x or an addon@version.
_IMAGES = ("png", "jpg", "jpeg", "gif", "svg", "webp", "bmp", "ico", "pdf")
_SOURCES = ("css", "js", "ts", "mjs", "py", "pyc", "html", "htm", "xml", "json", "yaml", "yml", "toml")
_OTHERS = ("txt", "md", "rst", "csv", "zip", "gz", "tar", "exe", "dll", "so")
_FILE_ENDINGS = frozenset((*_IMAGES, *_SOURCES, *_OTHERS))

_IPV4 = re.compile(r"(?<![\w.:/@+-])(?:\d{1,3}\.){3}\d{1,3}(?![\w@-]|\.\w)")
_IPV6 = re.compile(r"(?<![\w.:])(?:[0-9A-Fa-f]{1,4}:{1,2}){2,7}[0-9A-Fa-f]{1,4}(?![\w:]|\.\d)")
_VERSION_BEFORE = re.compile(
    r"(?:\b(?:v|ver|version|versions|release|rev|revision|build|driver|firmware|sections?|chapter|release[ds])"
    r"|[=><~!]=|\bversion\s+is)[\s.:=#]*$",
    re.IGNORECASE,
)
_CONTEXT = 24

# An international number with its plus, or a North American one with its separators.
_PHONE = re.compile(
    r"(?<![\w.+/=@-])"
    r"(?:\+[1-9]\d{0,2}(?:[ .-]?\(\d{1,4}\)|[ .-]?\d{1,4})(?:[ .-]?\d{2,4}){1,4}"
    r"|\(\d{3}\)[ .-]?\d{3}[.-]\d{4}"
    r"|(?:1[ .-])?[2-9]\d{2}([ .-])[2-9]\d{2}\1\d{4})"
    r"(?![\w@/-]|\.\w)"
)
# One class of characters in front: an alternation there would make the search four times as slow.
_PHONE_TRIGGER = re.compile(r"[+\d](?:(?<=\+)[1-9]|[ .)-]{1,2}\d{2})")
_PHONE_DIGITS = range(9, 16)


def _is_email(match: re.Match[str]) -> bool:
    local = match.group().partition("@")[0]
    return ".." not in local and match.group("top").lower() not in _FILE_ENDINGS


def _is_address(match: re.Match[str]) -> bool:
    """Whether a dotted number is an address that could be somebody's, not a version or a special one."""
    try:
        address = ipaddress.ip_address(match.group())
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or address.is_multicast or _is_mask(match.group()):
        return False
    before = match.string[max(0, match.start() - _CONTEXT) : match.start()]
    return _VERSION_BEFORE.search(before) is None


def _is_mask(text: str) -> bool:
    return text.startswith(("255.", "0."))


def _is_phone(match: re.Match[str]) -> bool:
    return sum(map(str.isdigit, match.group())) in _PHONE_DIGITS


@dataclass(frozen=True)
class _Rule:
    """A pattern, a test of its matches, and the word that replaces them.

    ``trigger`` is in every text that the pattern matches, and found much faster.
    """

    trigger: re.Pattern[str]
    pattern: re.Pattern[str]
    holds: Callable[[re.Match[str]], bool]
    word: str

    def mask(self, text: str) -> tuple[str, int]:
        """The masked text, and how many matches were replaced."""
        if self.trigger.search(text) is None:
            return text, 0
        replaced = 0

        def replacement(match: re.Match[str]) -> str:
            nonlocal replaced
            if not self.holds(match):
                return match.group()
            replaced += 1
            return self.word

        return self.pattern.sub(replacement, text), replaced


_RULES = {
    "email": (_Rule(re.compile("@"), _EMAIL, _is_email, "<EMAIL>"),),
    "ip": (
        _Rule(re.compile(r"\d\.\d{1,3}\.\d"), _IPV4, _is_address, "<IP_ADDRESS>"),
        _Rule(re.compile(r":[0-9A-Fa-f]{0,4}:"), _IPV6, _is_address, "<IP_ADDRESS>"),
    ),
    "phone": (_Rule(_PHONE_TRIGGER, _PHONE, _is_phone, "<PHONE_NUMBER>"),),
}


@dataclass(kw_only=True)
class MaskPii(Step):
    """Replaces personal data by its kind in angle brackets. Doing it twice changes nothing more.

    Every pattern has boundaries, ranges and context, so that GUIDs, versions, file names and long
    numbers stay. (datatrove's formatter has none, and takes 1.2.3.4 out of 1.2.3.4.5.) What was
    found is counted and never shown.
    """

    kinds: list[str]

    def apply(self, record: Record, counts: Counter[str]) -> Record:
        """Counts replacements by kind."""
        return map_text(record, lambda text: self._mask(text, counts))

    def _mask(self, text: str, counts: Counter[str]) -> str:
        for kind in self.kinds:
            for rule in _RULES[kind]:
                text, replaced = rule.mask(text)
                if replaced:
                    counts[kind] += replaced
        return text
