"""Tests of what later versions may add to public types without a break."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of the crate that applications use, every error and event.
GROWS = re.compile(r"\w*(Error|Fault|Event|EventKind)$")
# Of the crate under it, what the first re-exports. The errors of DDP, RDMAP and MPA are the numbers of a
# document.
REEXPORTED = {
    "Algorithm",
    "AsyncEvent",
    "CloseReason",
    "Completion",
    "Counters",
    "DropCause",
    "EcnPolicy",
    "PostError",
    "ReadItem",
    "Snapshot",
    "Status",
    "Statistics",
    "StreamError",
    "TransferCounters",
    "WcStatus",
}
REPORTS = {"Accepted", "Connected", "Usage"}
TYPE = re.compile(
    r"^ *(?P<open>#\[non_exhaustive\]\n *)?pub (?P<kind>enum|struct) (?P<name>\w+)", re.MULTILINE
)


class PublicTypesTest(unittest.TestCase):
    def test_errors_events_and_reports_may_grow(self) -> None:
        """A match or a literal elsewhere would break with the next variant or field."""
        seen = set()
        for folder in ("control/src", "dataplane/src"):
            for path in sorted((ROOT / folder).rglob("*.rs")):
                for found in TYPE.finditer(path.read_text()):
                    name = found["name"]
                    if folder == "control/src":
                        grows = name in REPORTS or (found["kind"] == "enum" and GROWS.match(name))
                    else:
                        grows = name in REEXPORTED and path.parent.name not in ("net", "path")
                    if grows:
                        seen.add(name)
                        self.assertTrue(found["open"], f"{path.relative_to(ROOT)}: {name}")
        self.assertLessEqual(REPORTS | REEXPORTED | {"ConnectError", "StartError", "EventKind"}, seen)


if __name__ == "__main__":
    unittest.main()
