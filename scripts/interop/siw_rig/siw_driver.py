"""What becomes of the source of siw: the driver as it is, and one whose compile-time choices can be made
when it is loaded."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from rig.processes import RigError

STOCK, PATCHED = "stock", "patched"
SWITCHES: Final = ("mpa_crc_required", "mpa_crc_strict", "peer_to_peer")
"""Constants of siw_main.c that become parameters of the patched module; ``mpa_version`` does too."""

_ACCEPTED: Final = "\tsiw_cep_set_free(cep);\n\n\treturn 0;\n\nerror_unlock:"
"""The end of siw_accept() where all went well."""

_LOOK_AGAIN: Final = """\
	/* What came between the Reply and siw_qp_socket_assoc() has woken nobody who reads FPDUs. */
	lock_sock(cep->sock->sk);
	local_bh_disable();
	cep->sock->sk->sk_data_ready(cep->sock->sk);
	local_bh_enable();
	release_sock(cep->sock->sk);
"""


def _replace(path: Path, old: str, new: str) -> None:
    """Replace what has to be there once."""
    text = path.read_text()
    if text.count(old) != 1:
        raise RigError(
            f"{path.name} of this kernel is not as expected: {text.count(old)} times {old.strip()!r}"
        )
    path.write_text(text.replace(old, new))


def patch(source: Path, target: Path) -> None:
    """Copy the driver and change the copy.  On the wire both are the same until a parameter is given."""
    shutil.copytree(source, target)
    main, header = target / "siw_main.c", target / "siw.h"
    for name in SWITCHES:
        _replace(main, f"const bool {name};", f"bool {name};\nmodule_param({name}, bool, 0444);")
        _replace(header, f"extern const bool {name};", f"extern bool {name};")
    version = re.search(r"^u_char mpa_version = \w+;", main.read_text(), re.MULTILINE)
    if not version:
        raise RigError("siw_main.c of this kernel has no mpa_version")
    _replace(main, version[0], f"{version[0]}\nmodule_param(mpa_version, byte, 0444);")
    # siw sends its Reply before the socket is the queue pair's: a first FPDU that comes in between stays
    # unread until more comes.
    _replace(target / "siw_cm.c", _ACCEPTED, _LOOK_AGAIN + _ACCEPTED)
