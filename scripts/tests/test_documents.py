"""Tests of README.md and the tutorial: a test runs every block of shell commands, or it is said why not; and
what README repeats of other files is as they have it."""

import pathlib
import re
import sys
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from requirement_trace.documents import read_requirements

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
DOCUMENTS = ("README.md", "docs/tutorial.md")
TESTS = ("bench/tests/documents.rs", "control/tests/examples.rs", "ffi/c/tests/programs.rs")
NOT_RUN = {
    "scripts/demo": "minutes, and a release build; scripts/test runs the others",
    "scripts/setup": "scripts/test begins with it",
    "scripts/interop/siw": "boots a virtual machine; run before each release",
    "warpline-run --device packet:eth0 ib_write_bw": "scripts/interop/verbs runs it, and scripts/demo",
    "cargo build --release -p warpline-verbs": "a release build; scripts/interop/verbs runs the programs",
}
"""The first words of blocks that no test runs, and why."""


def blocks() -> list[str]:
    """The blocks of shell commands."""
    found = []
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        found += re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        others = set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) - {"sh", "rust", "toml"}
        if others:
            raise AssertionError(f"{document}: commands are in blocks of sh, not of {others}")
    return found


class DocumentsTest(unittest.TestCase):
    def test_every_block_is_run(self) -> None:
        tests = "\n".join((ROOT / test).read_text() for test in TESTS)
        beginnings = re.findall(r'block\(\s*"([^"]+)"', tests)
        self.assertGreater(len(beginnings), 6)
        unrun = set(NOT_RUN)
        for block in blocks():
            line = block.splitlines()[0]
            runs = [beginning for beginning in beginnings if line.startswith(beginning)]
            left = [words for words in NOT_RUN if line.startswith(words)]
            self.assertTrue(bool(runs) != bool(left), f"nobody runs, or leaves out for a reason: {line}")
            unrun -= set(left)
        self.assertEqual(unrun, set(), "no document has these any more")

    def test_the_crate_is_where_readme_has_it(self) -> None:
        [block] = re.findall(r"^```toml\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
        folder = tomllib.loads(block)["dependencies"]["warpline"]["path"].removeprefix("../warpline/")
        package = tomllib.loads((ROOT / folder / "Cargo.toml").read_text())["package"]
        self.assertEqual(package["name"], "warpline")

    def test_the_version_is_that_of_the_packages(self) -> None:
        package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
        self.assertIn(f"This is version {package['version']}: ", README.read_text())

    def test_requirements_are_counted(self) -> None:
        text = (ROOT / "docs/requirements.md").read_text()
        requirements, problems = read_requirements(text)
        self.assertEqual(problems, [])
        self.assertIn(f"numbers the {len(requirements)} requirements", README.read_text())
        self.assertIn(f"\n| | total | {len(requirements)} |", text)

    def test_scripts_of_the_documents_exist(self) -> None:
        for block in blocks():
            for script in re.findall(r"^(scripts/\S+)", block, re.MULTILINE):
                self.assertTrue((ROOT / script).stat().st_mode & 0o100, script)


if __name__ == "__main__":
    unittest.main()
