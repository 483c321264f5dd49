"""The figures of scripts/demo: how idle the machine is, and the closing table.

    demo_report.py idle        percentage of idle time of all cores over one second
    demo_report.py table DIR   the table from DIR/{sweep,warpline,floor,iperf3}.json and DIR/idle
"""

import json
import pathlib
import sys
import time


def idle_percentage(before, after):
    """Idle share, in percent, between two readings of the first line of /proc/stat."""
    ticks = [int(later) - int(earlier) for earlier, later in zip(before.split()[1:9], after.split()[1:9])]
    # Fields 3 and 4 are idle and iowait (proc(5)).
    return 100 * (ticks[3] + ticks[4]) / max(1, sum(ticks))


def read_reports(path):
    """The reports in a file that holds one JSON object, a list of them, or one a line."""
    text = path.read_text()
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = [json.loads(line) for line in text.splitlines() if line.strip()]
    return value if isinstance(value, list) else [value]


def iperf3_gbit_per_s(report):
    """What the receiver of an iperf3 run got."""
    return report["end"]["sum_received"]["bits_per_second"] / 1e9


def ratio(value, reference):
    """`value` over `reference`, to print."""
    return f"{value / reference:.2f}" if reference else "-"


def table(directory):
    """The closing table, and how many octets arrived wrong in all runs together."""
    runs = read_reports(directory / "sweep.json") + read_reports(directory / "warpline.json")
    measured = read_reports(directory / "warpline.json")[-1]
    floor = read_reports(directory / "floor.json")[-1]["gbit_per_s"]
    warpline = measured["gbit_per_s"]
    corrupt = sum(run["corrupt_bytes"] for run in runs)
    unverified = [run["size"] for run in runs if not run["verified"]]

    lines = [
        ("warpline, Gb/s", f"{warpline:.2f}"),
        ("floor (CRC pass and copy pass), Gb/s", f"{floor:.2f}"),
        ("warpline / floor", ratio(warpline, floor)),
    ]
    iperf3 = directory / "iperf3.json"
    if iperf3.exists():
        reference = iperf3_gbit_per_s(read_reports(iperf3)[-1])
        lines += [("iperf3 over veth, Gb/s", f"{reference:.2f}"), ("warpline / iperf3", ratio(warpline, reference))]
    else:
        lines += [("iperf3 over veth, Gb/s", "not measured")]
    lines += [
        ("idle before the start, %", (directory / "idle").read_text().strip()),
        ("verified", f"no: sizes {unverified}" if unverified else "yes"),
        ("corrupt_bytes", str(corrupt)),
    ]
    return lines, corrupt or len(unverified)


def main(arguments):
    if arguments == ["idle"]:
        readings = []
        for pause in (1, 0):
            with open("/proc/stat", encoding="ascii") as stat:
                readings.append(stat.readline())
            time.sleep(pause)
        print(f"{idle_percentage(*readings):.0f}")
        return 0
    if len(arguments) == 2 and arguments[0] == "table":
        lines, wrong = table(pathlib.Path(arguments[1]))
        for name, value in lines:
            print(f"{name:<40} {value:>12}")
        return 1 if wrong else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
