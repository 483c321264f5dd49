"""What passed, and with a case that did not, all there is of it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field

from rig import outcomes
from rig.processes import NotHere, RigError

from .cases import Case, Rig


@dataclass(frozen=True)
class Row:
    """One case with one adapter."""

    adapter: str
    case: str
    outcome: str
    detail: str


PASSED, LEFT_OUT, FAILED = "ok", "left out", "FAILED"


@dataclass
class Table:
    """The rows so far."""

    rows: list[Row] = field(default_factory=list)

    def play(self, rig: Rig, case: Case) -> None:
        """One case."""
        try:
            outcome, detail = PASSED, case.play(rig)
        except NotHere as reason:
            outcome, detail = LEFT_OUT, str(reason)
        except (RigError, OSError, subprocess.TimeoutExpired) as error:
            outcome, detail = FAILED, f"{str(error).strip()}{self._evidence(rig)}"
        rig.stop()
        row = Row(rig.adapter.name, case.what, outcome, detail)
        print(f"{row.outcome:8}  {row.adapter}: {row.case}: {row.detail}", flush=True)
        self.rows.append(row)

    @staticmethod
    def _evidence(rig: Rig) -> str:
        """Put everything by that was written, with what the guest's kernel and its programs said."""
        try:
            said = rig.shell.run("dmesg | tail -n 40; ps; cat /tmp/tmp.* 2>/dev/null", 30).output
        except RigError as error:
            said = str(error)
        kept = outcomes.keep(rig.directory, "adapters")
        (kept / "guest").write_text(said)
        return f"; all there is of it: {kept}"

    def print(self) -> None:
        """All rows, in columns."""
        if not self.rows:
            return
        lines = [("adapter", "case", "", "")]
        lines += [(row.adapter, row.case, row.outcome, row.detail) for row in self.rows]
        outcomes.print_columns(lines)

    def count(self, outcome: str) -> int:
        """How many cases ended so."""
        return sum(row.outcome == outcome for row in self.rows)
