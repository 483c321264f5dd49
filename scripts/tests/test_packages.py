"""Tests of the packages that a registry would get."""

import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")
FIELDS = ("description", "license", "repository", "keywords", "categories", "rust-version")


def cargo(*arguments: str) -> str:
    said = subprocess.run(
        ["cargo", *arguments, "--offline"],
        cwd=ROOT,
        # Wherever the tests run, the packages are built for everybody.
        env={**os.environ, "CARGO_TERM_COLOR": "never"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if said.returncode != 0:
        raise AssertionError(f"cargo {' '.join(arguments)}: {said.stderr}")
    return said.stdout


@unittest.skipIf(
    shutil.which("cargo") is None or bool(os.environ.get("WARPLINE_QUICK")),
    "needs cargo, and what the registry says of every dependency: the whole of scripts/test",
)
class PackagesTest(unittest.TestCase):
    """Every crate of the workspace packed as `cargo publish` would, all but the compilation."""

    packages: dict[str, dict[str, bytes]]
    manifests: dict[str, pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        members = json.loads(cargo("metadata", "--no-deps", "--format-version", "1"))["packages"]
        cls.manifests = {member["name"]: pathlib.Path(member["manifest_path"]) for member in members}
        cls.packages = {}
        with tempfile.TemporaryDirectory() as folder:
            cargo("package", "--workspace", "--no-verify", "--allow-dirty", "--quiet", "--target-dir", folder)
            for path in pathlib.Path(folder, "package").glob("*.crate"):
                with tarfile.open(path) as archive:
                    files = {}
                    for member in archive.getmembers():
                        content = archive.extractfile(member)
                        assert content is not None, member.name
                        files[member.name.partition("/")[2]] = content.read()
                cls.packages[tomllib.loads(files["Cargo.toml"].decode())["package"]["name"]] = files

    def test_every_crate_is_packed(self) -> None:
        self.assertEqual(set(self.packages), set(self.manifests))
        self.assertGreaterEqual(len(self.packages), 6)

    def test_a_package_says_what_it_is(self) -> None:
        for name, files in self.packages.items():
            about = tomllib.loads(files["Cargo.toml"].decode())["package"]
            with self.subTest(name):
                for field in FIELDS:
                    self.assertTrue(about.get(field), field)
                self.assertEqual(about["readme"], "README.md")
                self.assertIn(name.encode(), files["README.md"])
                for licence in LICENCES:
                    self.assertEqual(files[licence], (ROOT / licence).read_bytes(), licence)
                self.assertIn("targets", about["metadata"]["docs"]["rs"])

    def test_what_a_crate_includes_is_in_its_package(self) -> None:
        """Files outside of a crate's folder are not; of tests, no package has any."""
        for name, files in self.packages.items():
            folder = self.manifests[name].parent
            with self.subTest(name):
                expected = {
                    str(path.relative_to(folder)) for path in (folder / "src").rglob("*") if path.is_file()
                }
                self.assertEqual(expected - set(files), set())
                self.assertEqual([path for path in files if path.startswith("tests/") and ".rs" in path], [])

    def test_crates_of_one_release_need_each_other(self) -> None:
        """Each in exactly the version that it was made for, and none itself."""
        for name, files in self.packages.items():
            manifest = tomllib.loads(files["Cargo.toml"].decode())
            version = manifest["package"]["version"]
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                for key, dependency in manifest.get(kind, {}).items():
                    needed = dependency.get("package", key) if isinstance(dependency, dict) else key
                    with self.subTest(f"{name}: {needed}"):
                        self.assertNotEqual(needed, name)
                        if needed in self.manifests:
                            self.assertEqual(dependency["version"], f"={version}")

    def test_documentation_needs_no_dpdk(self) -> None:
        """Bindings for documentation are in the package; a test of the crate keeps them up to date."""
        kept = self.packages["warpline-dpdk-sys"]["src/documentation.rs"].decode()
        self.assertIn("pub fn rte_eal_init(", kept)


if __name__ == "__main__":
    unittest.main()
