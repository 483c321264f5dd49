"""Tests of the check of imports, on crates of a few files."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "check_layers"
LOADER = importlib.machinery.SourceFileLoader("check_layers", str(SCRIPT))
SPEC = importlib.util.spec_from_loader("check_layers", LOADER)
assert SPEC is not None
check_layers = importlib.util.module_from_spec(SPEC)


def setUpModule() -> None:
    import sys

    sys.modules["check_layers"] = check_layers
    LOADER.exec_module(check_layers)


class CheckLayers(unittest.TestCase):
    def complaints(self, files: dict[str, str], layers: list[str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            found = check_layers.complaints(folder, layers)
            return [line.removeprefix(f"{folder}: ") for line in found]

    def test_imports_lead_down(self) -> None:
        files = {"low/mod.rs": "", "high/mod.rs": "use crate::low::A;\nmod part;", "high/part.rs": ""}
        self.assertEqual(self.complaints(files, ["low", "high"]), [])
        self.assertEqual(self.complaints(files, ["high", "low"]), ["high imports low of a higher layer"])
        self.assertEqual(self.complaints(files, ["low"])[0], "high is in no layer")

    def test_paths_without_use_count(self) -> None:
        files = {"low.rs": "fn f() { crate::high::g(); }", "high.rs": ""}
        self.assertEqual(len(self.complaints(files, ["low", "high"])), 1)

    def test_comments_and_tests_do_not_count(self) -> None:
        code = "// use crate::high::A;\n#[cfg(test)]\nmod tests {\n    use crate::high::A;\n}\n"
        self.assertEqual(self.complaints({"low.rs": code, "high.rs": ""}, ["low", "high"]), [])

    def test_circles_across_folders(self) -> None:
        files = {
            "one/mod.rs": "use crate::two::{\n    deep::A,\n};",
            "two/mod.rs": "pub mod deep;",
            "two/deep.rs": "use crate::one::B;",
        }
        self.assertEqual(self.complaints(files, []), ["a circle across folders: one, two"])

    def test_circles_of_many_files(self) -> None:
        ring = {f"a/f{n}.rs": f"use super::f{(n + 1) % 4}::X;" for n in range(4)}
        self.assertEqual(
            self.complaints({"a/mod.rs": "", **ring}, []),
            ["a circle of 4 files: a::f0, a::f1, a::f2, a::f3"],
        )
        ring["a/f2.rs"] = "use super::f0::X;"
        self.assertEqual(self.complaints({"a/mod.rs": "", **ring}, []), [])

    def test_a_re_export_leads_down_too(self) -> None:
        for export in ("pub use crate::high::X;", "pub(super) use crate::high::X;"):
            files = {"low/mod.rs": export, "high/mod.rs": ""}
            self.assertEqual(self.complaints(files, ["low", "high"]), ["low imports high of a higher layer"])
        files = {
            "low/mod.rs": "pub use crate::high::X;",
            "low/part.rs": "",
            "high/mod.rs": "use crate::low::part::Y;",
        }
        self.assertEqual(self.complaints(files, []), ["a circle across folders: high, low"])

    def test_impl_in_many_files(self) -> None:
        heads = [
            "impl A {",
            "impl<D: Device<Frame = X>> A<D> {",
            "impl<F, G: Fn(u8) -> Vec<u8>> Drop for A<F>\nwhere\n    G: B,\n{",
            "impl super::kind::A {",
            "impl fmt::Debug for A {",
        ]
        files = {f"a/f{n}.rs": f"use super::kind::A;\n{head}\n}}" for n, head in enumerate(heads)}
        files |= {"a/mod.rs": "pub(crate) use kind::A;", "a/kind.rs": "pub(crate) struct A<D> {\n}"}
        self.assertEqual(self.complaints(files, []), [])
        files["b.rs"] = "use crate::a::A;\nimpl A {\n}"
        modules = "a::f0, a::f1, a::f2, a::f3, a::f4, b"
        self.assertEqual(self.complaints(files, []), [f"impl a::kind::A in 6 files: {modules}"])
        # Another type of that name, and an `impl` for a type of another crate.
        files["b.rs"] = "struct A;\nimpl A {\n}"
        self.assertEqual(self.complaints(files, []), [])
        files["b.rs"] = "use std::A;\nimpl B for A {\n}"
        self.assertEqual(self.complaints(files, []), [])

    def test_code_after_a_file_of_tests_counts(self) -> None:
        code = "#[cfg(test)]\nmod helper;\nuse crate::high::A;\n#[cfg(test)]\nmod tests {\n}\n"
        self.assertEqual(len(self.complaints({"low.rs": code, "high.rs": ""}, ["low", "high"])), 1)

    def test_a_re_export_counts_as_what_it_names(self) -> None:
        files = {
            "a/mod.rs": "pub use part::Part;\nmod part;\nmod user;\nmod other;\nmod more;",
            "a/part.rs": "",
            "a/user.rs": "use super::Part;\nuse super::other::O;",
            "a/other.rs": "use crate::a::Part;\nuse super::more::M;",
            "a/more.rs": "use super::Part;",
        }
        self.assertEqual(self.complaints(files, []), [])


if __name__ == "__main__":
    unittest.main()
