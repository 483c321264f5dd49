"""FPDUs, Markers, MULPDU and startup frames against the golden vectors."""

from __future__ import annotations

import random
import re
import unittest

from iwarp import mpa
from iwarp.crc32c import crc_field
from iwarp.errors import ConnectionFailed, MpaError, StartupError
from iwarp.mpa import EnhancedData

from .vectors import DIRECTORY, octets, records


def read_all(
    data: bytes, markers: bool, crc: bool = True, position: int = 0, step: int = 1 << 20
) -> list[mpa.Fpdu]:
    """Every FPDU in ``data``, which arrives ``step`` octets at a time and has to be used up."""
    reader = mpa.FpduReader(markers, crc, position)
    found = []
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
        while (fpdu := reader.read()) is not None:
            found.append(fpdu)
    if reader.incomplete_octets:
        raise AssertionError(f"{reader.incomplete_octets} octets left over")
    return found


FRAMED = {
    # name: (position of the first record, Markers)
    "rfc5044-fig4": (500, True),
    "rfc5044-fig5": (0, True),
    "rfc5044-fig6": (0x1EC, True),
    "culley00-fig5": (0, True),
    "culley00-fig6": (0x1EC, True),
    "mpa-stream-fig6": (0, True),
    "mpa-fig5-nomarkers": (0, False),
    "mpa-marker-between": (0, True),
    "mpa-marker-before-crc": (480, True),
    "mpa-three-markers": (0, True),
    "mpa-padding": (0, True),
}


class Fpdus(unittest.TestCase):
    """RFC 5044 §4.1 to §4.4."""

    def test_vectors_read_and_written(self) -> None:
        """Each record is one FPDU; writing its ULPDU gives the same octets (MPA-4.1-01..04, -4.3-*,
        -4.4-11..14)."""
        for name, (position, markers) in FRAMED.items():
            with self.subTest(name):
                vectors = [record.octets for record in records(name)]
                found = read_all(b"".join(vectors), markers, position=position)
                self.assertEqual([fpdu.octets for fpdu in found], list(map(len, vectors)))
                writer = mpa.FpduWriter(markers, crc=True, position=position)
                self.assertEqual([writer.frame(fpdu.ulpdu) for fpdu in found], vectors)

    def test_ulpdu_and_fpdu_pairs(self) -> None:
        """MPA-4.1-01 on the records that come as ULPDU and as FPDU without Markers."""
        for name in ("mpa-rtr", "rdmap-send", "rdmap-write", "rdmap-read", "rdmap-terminate", "rdmap-7306"):
            for ulpdu, fpdu in zip(records(name)[::2], records(name)[1::2], strict=True):
                with self.subTest(ulpdu.label):
                    self.assertEqual(mpa.FpduWriter(markers=False, crc=True).frame(ulpdu.octets), fpdu.octets)
                    self.assertEqual([f.ulpdu for f in read_all(fpdu.octets, markers=False)], [ulpdu.octets])

    def test_version_0_segments_are_framed_alike(self) -> None:
        for record in records("rdmac-v0"):
            self.assertEqual(len(read_all(record.octets, markers=True)), 1)

    def test_any_arrival_gives_the_same_fpdus(self) -> None:
        """MPA-5.2-01."""
        data = b"".join(record.octets for record in records("mpa-padding"))
        whole = read_all(data, markers=True)
        self.assertEqual([len(fpdu.ulpdu) for fpdu in whole], [18, 19, 20, 21, 14, 128, 1, 64])
        for step in (1, 2, 3, 5, 29):
            self.assertEqual(read_all(data, markers=True, step=step), whole)

    def test_pad_value_is_ignored(self) -> None:
        """MPA-4.1-05."""
        covered = b"\0\1A\xff"
        self.assertEqual(read_all(covered + crc_field(covered), markers=False)[0].ulpdu, b"A")

    def test_crc_off_accepts_any_field(self) -> None:
        """MPA-4.1-06, MPA-7.1.1-09."""
        vector = octets("mpa-fig5-crcoff")
        self.assertEqual(len(read_all(vector, markers=False, crc=False)[0].ulpdu), 42)
        with self.assertRaises(MpaError):
            read_all(vector, markers=False)

    def test_negative_and_tolerated(self) -> None:
        """MPA-8-02, MPA-8-03; MPA-4.2-02, MPA-4.2-04."""
        for number, position, code in ((1, 0, "mpa:2"), (2, 0x1EC, "mpa:3")):
            with self.assertRaises(MpaError) as caught:
                read_all(octets("mpa-negative", number), markers=True, position=position)
            self.assertEqual(caught.exception.code, code)
        for number in (3, 4):
            self.assertEqual(len(read_all(octets("mpa-negative", number), True, position=0x1EC)), 1)

    def test_every_single_bit_error_shows(self) -> None:
        """MPA-4.4-16: no altered octet of an FPDU gets through; a longer length waits for more octets."""
        good = octets("rfc5044-fig5")
        for bit in range(8 * len(good)):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            reader = mpa.FpduReader(markers=True, crc=True)
            reader.feed(bytes(bad))
            with self.subTest(bit=bit):
                try:
                    self.assertIsNone(reader.read())
                except ConnectionFailed as failure:
                    self.assertEqual(failure.code, "mpa:2")

    def test_ulpdu_length_above_the_limit(self) -> None:
        """A-05."""
        for length in (mpa.MAX_ULPDU + 1, 65535):
            with self.assertRaises(MpaError) as caught:
                read_all(mpa.FpduWriter(markers=True, crc=True).frame(bytes(length)), markers=True)
            self.assertEqual(caught.exception.code, "mpa:3")

    def test_random_streams(self) -> None:
        """Any lengths, Markers on and off: the predicted FPDU length is the written one, and it reads
        back."""
        source = random.Random(5044)
        for markers in (False, True):
            writer = mpa.FpduWriter(markers, crc=True)
            ulpdus = [
                source.randbytes(source.choice((0, 1, 17, 490, 500, 512, source.randrange(3000))))
                for _ in range(400)
            ]
            written = []
            for ulpdu in ulpdus:
                expected = mpa.fpdu_octets(writer.position, len(ulpdu), markers)
                written.append(writer.frame(ulpdu))
                self.assertEqual(len(written[-1]), expected)
            stream = b"".join(written)
            self.assertEqual([fpdu.ulpdu for fpdu in read_all(stream, markers, step=1000)], ulpdus)
            if markers:  # MPA-4.3-02, MPA-4.2-03
                for at in range(0, len(stream), 512):
                    self.assertEqual(stream[at : at + 2], b"\0\0")
                    self.assertEqual(stream[at + 3] % 4, 0)


class Mulpdu(unittest.TestCase):
    """RFC 5044 §4.5."""

    def test_table(self) -> None:
        """The table of vectors.md: EMSS, formula and reported value with Markers, the same without, worst
        FPDU."""
        row = re.compile(r"\| (\d+) \| \d+ \| (\d+) \| \d+ \| (\d+) \| (\d+)")
        section = (DIRECTORY / "README.md").read_text().split("## 3. MULPDU")[1].split("\n## ")[0]
        rows = [tuple(map(int, found.groups())) for found in row.finditer(section)]
        self.assertGreater(len(rows), 20)
        for emss, with_markers, without, worst in rows:
            self.assertEqual(mpa.mulpdu(emss, markers=True), with_markers)
            self.assertEqual(mpa.mulpdu(emss, markers=False), without)
            phases = (mpa.fpdu_octets(phase, with_markers, markers=True) for phase in range(0, 512, 4))
            self.assertEqual(max(phases), worst)

    def test_range(self) -> None:
        """MPA-3-04, MPA-4.5-06, A-04."""
        for markers in (False, True):
            for emss in range(1, 65536):
                self.assertTrue(128 <= mpa.mulpdu(emss, markers) <= 64768)


class Startup(unittest.TestCase):
    """RFC 5044 §7.1.1."""

    def test_revision_1(self) -> None:
        for record in records("mpa-startup-rev1"):
            with self.subTest(record.label):
                key = mpa.REQUEST_KEY if record.label.startswith("Request") else mpa.REPLY_KEY
                parsed = mpa.parse_startup(record.octets, key)
                assert parsed is not None
                frame, length = parsed
                self.assertEqual(length, len(record.octets))
                self.assertEqual(frame.encode(), record.octets)
                self.assertEqual(frame.rejected, "reject" in record.label)
                for cut in range(len(record.octets)):
                    self.assertIsNone(mpa.parse_startup(record.octets[:cut], key))

    def test_negative(self) -> None:
        """MPA-7.1.1-02, -14, -17; record 5 is a whole frame and four octets too many (A-03); record 6 is
        accepted."""
        kinds = {1: "key", 2: "key", 3: "private-data-length", 4: "revision", 7: "private-data-length"}
        for number, kind in kinds.items():
            with self.subTest(number), self.assertRaises(StartupError) as caught:
                mpa.parse_startup(octets("mpa-startup-negative", number), mpa.REQUEST_KEY)
            self.assertEqual(caught.exception.code, f"startup:{kind}")
        parsed = mpa.parse_startup(octets("mpa-startup-negative", 5), mpa.REQUEST_KEY)
        assert parsed is not None
        self.assertEqual(parsed[1], 24)
        parsed = mpa.parse_startup(octets("mpa-startup-negative", 6), mpa.REQUEST_KEY)
        assert parsed is not None
        self.assertFalse(parsed[0].rejected)  # MPA-7.1.1-10

    def test_revisions_0_and_2(self) -> None:
        """RDMAC-C.2.4-01, MPAv2-6-01, MPAv2-6-05, MPAv2-9-01: every record reads, and is written again,
        octet for octet."""
        both, rest = mpa.Rtr.SEND | mpa.Rtr.WRITE | mpa.Rtr.READ, mpa.NOT_NEGOTIATED
        enhanced = [
            EnhancedData(16, 16, True, both),
            EnhancedData(4, 8, True, mpa.Rtr.READ),
            EnhancedData(16, 16, True, mpa.Rtr.WRITE),
            EnhancedData(8, 4, True, mpa.Rtr.READ),
            EnhancedData(16, 32),
            EnhancedData(1, 1),
            EnhancedData(rest, rest),
            None,
        ]
        found = records("mpa-startup-rev0") + records("mpa-startup-rev2")
        for record, word in zip(found, [None] * 4 + enhanced, strict=True):
            key = mpa.REPLY_KEY if b" Rep " in record.octets else mpa.REQUEST_KEY
            with self.subTest(record.label):
                parsed = mpa.parse_startup(record.octets, key)
                assert parsed is not None
                frame, length = parsed
                self.assertEqual((length, frame.encode()), (len(record.octets), record.octets))
                self.assertEqual(frame.enhanced, word)
                self.assertEqual(frame.private_data, b"abcd" if "abcd" in record.label else b"")

    def test_enhanced_data_without_the_peer_to_peer_model(self) -> None:
        """MPAv2-9.2-09: kinds have no meaning without A."""
        self.assertEqual(EnhancedData.parse(bytes.fromhex("4001c002")), EnhancedData(1, 2))
        self.assertEqual(EnhancedData(1, 2, False, mpa.Rtr.READ).encode(), bytes.fromhex("00010002"))

    def test_answer_to_revision_0(self) -> None:
        """A-12: the frame that :func:`iwarp.peer.start` answers with."""
        refusal = mpa.StartupFrame(mpa.REPLY_KEY, markers=False, crc=True, rejected=True)
        self.assertEqual(refusal.encode(), octets("mpa-startup-rev0", 4))

    def test_every_octet_of_the_keys_counts(self) -> None:
        """MPA-7.1.1-04."""
        frame = mpa.StartupFrame(mpa.REPLY_KEY, markers=False, crc=True).encode()
        for at in range(16):
            bad = bytearray(frame)
            bad[at] ^= 0x20
            with self.assertRaises(StartupError):
                mpa.parse_startup(bytes(bad), mpa.REPLY_KEY)


if __name__ == "__main__":
    unittest.main()
