"""Names in docs/glossary.md are names in the code."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Words of other projects, which the glossary explains.
FOREIGN = re.compile(r"(ibv_|rdma_|IBV_|[lr]key$|wr_id$|min_rnr_timer$)")


def rust_sources() -> str:
    """Returns the text of all of our Rust."""
    packages = [ROOT / name for name in ("dataplane", "control", "ffi")]
    return "\n".join(
        path.read_text()
        for package in packages
        for path in sorted(package.rglob("*.rs"))
        if "src" in path.parts
    )


class GlossaryTest(unittest.TestCase):
    def test_names_exist(self) -> None:
        words = set(re.findall(r"\w+", rust_sources()))
        text = (ROOT / "docs/glossary.md").read_text()
        rows = [line for line in text.splitlines() if line.startswith("|")]
        names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
        self.assertGreater(len(names), 100)
        for name in names:
            if FOREIGN.match(name):
                continue
            with self.subTest(name):
                if "/" in name:
                    self.assertTrue((ROOT / name).exists())
                else:
                    self.assertEqual([part for part in re.findall(r"\w+", name) if part not in words], [])
