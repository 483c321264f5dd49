"""Tests of the check of lines, and of how it fills Markdown."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "check_lines"
LOADER = importlib.machinery.SourceFileLoader("check_lines", str(SCRIPT))
SPEC = importlib.util.spec_from_loader("check_lines", LOADER)
assert SPEC is not None
check_lines = importlib.util.module_from_spec(SPEC)

WORDS = "word " * 30
WORD = "w" * 120


def setUpModule() -> None:
    import sys

    sys.modules["check_lines"] = check_lines
    LOADER.exec_module(check_lines)


class CheckLines(unittest.TestCase):
    def found(self, text: str) -> list[int]:
        return [number for number, _ in check_lines.long_lines(text, markdown=True)]

    def test_text_ends_at_the_last_column(self) -> None:
        self.assertEqual(self.found("x" * 50 + " " + "y" * 59), [])
        self.assertEqual(self.found("x" * 50 + " " + "y" * 60), [1])
        for text in [WORDS, f"- {WORDS}", f"# {WORDS}", f"> {WORDS}", f"see [this]({WORD})"]:
            self.assertEqual(self.found(f"\n{text}\n"), [2], text)

    def test_what_a_line_break_would_change_may_be_longer(self) -> None:
        for text in [f"| {WORDS}|", f"  | {WORDS}|", WORD, f"- {WORD}", f"1. {WORD}", f"[this]({WORD})"]:
            self.assertEqual(self.found(text), [], text)
        self.assertEqual(self.found(f"```text\n{WORDS}\n```\n{WORDS}"), [4])
        self.assertEqual([*check_lines.long_lines(f"```text\n{WORDS}")], [(2, 150)], "no Markdown")

    def test_paragraphs_and_items_are_filled(self) -> None:
        line = " ".join(["word"] * 22)
        rest = "word word word word word word word word"
        self.assertEqual(check_lines.filled(f"{WORDS}\n"), f"{line}\n{rest}\n")
        items = check_lines.filled(f"- {WORDS}\n- short\n  and short\n\n1. {WORDS}\n").splitlines()
        self.assertEqual(
            [item[:7] for item in items],
            ["- word ", "  word ", "- short", "  and s", "", "1. word", "   word"],
        )
        self.assertTrue(all(len(item) <= 110 for item in items), items)

    def test_what_is_short_or_not_text_stays(self) -> None:
        for text in ["a\nb\n", f"| {WORDS}|\n", f"```\n{WORDS}\n```\n", f"# {WORDS}\n", f"<p>{WORDS}\n"]:
            self.assertEqual(check_lines.filled(text), text)

    def test_code_stays_in_one_line_and_no_mark_comes_to_its_front(self) -> None:
        front = "x" * 100
        self.assertEqual(check_lines.filled(f"{front} `one two three`\n"), f"{front}\n`one two three`\n")
        for mark in ["- ", "+ ", "1. ", "# ", "> ", "| "]:
            lines = check_lines.filled(f"{'x' * 102} before {mark}after it\n").splitlines()
            self.assertEqual(lines[1], f"before {mark}after it")


if __name__ == "__main__":
    unittest.main()
