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
WHOLE = "adapter"
"""In place of a case, where a row is about all of them."""
FAULTS = (RigError, OSError, subprocess.TimeoutExpired, KeyError)
"""What ends a case. A report of a program that lacks a field is a :class:`KeyError`."""


def described(error: Exception) -> str:
    """What went wrong, in a line."""
    return f"a report has no {error}" if isinstance(error, KeyError) else str(error).strip()


@dataclass
class Table:
    """The rows so far."""

    rows: list[Row] = field(default_factory=list)

    def play(self, rig: Rig, case: Case) -> bool:
        """One case. Returns false if it failed."""
        try:
            outcome, detail = PASSED, case.play(rig)
        except NotHere as reason:
            outcome, detail = LEFT_OUT, str(reason)
        except FAULTS as error:
            outcome, detail = FAILED, f"{described(error)}{self._evidence(rig)}"
        self.add(Row(rig.adapter.name, case.what, outcome, detail))
        rig.stop()
        return outcome != FAILED

    def add(self, row: Row) -> None:
        """Keep a row, and print it at once."""
        self.rows.append(row)
        print(f"{row.outcome:8}  {row.adapter}: {row.case}: {row.detail}", flush=True)

    def end_adapter(self, adapter: str, error: Exception) -> None:
        """Note that an adapter's machine failed: no other case of it is played."""
        self.add(Row(adapter, WHOLE, FAILED, f"{described(error)}; what was not played yet is not played"))

    def leave_adapter_out(self, adapter: str, reason: str) -> None:
        """Note that there is no such adapter here."""
        self.add(Row(adapter, WHOLE, LEFT_OUT, reason))

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
        """How many cases ended so. An adapter whose machine failed counts as one."""
        left_out = self.adapters_left_out()
        return sum(row.outcome == outcome for row in self.rows if row.adapter not in left_out)

    def adapters_left_out(self) -> list[str]:
        """The adapters that are not there at all."""
        return [row.adapter for row in self.rows if (row.case, row.outcome) == (WHOLE, LEFT_OUT)]

    def summary(self) -> str:
        """The last line."""
        counts = (self.count(PASSED), self.count(FAILED), self.count(LEFT_OUT))
        cases = "{} passed, {} failed, {} left out".format(*counts)
        missing = self.adapters_left_out()
        return f"{cases}; adapters left out: {len(missing)} ({', '.join(missing)})" if missing else cases
