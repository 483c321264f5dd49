//! What `line-rate` prints and writes.

use serde::Serialize;

/// What was counted.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub seconds: f64,
    pub all_cycles: u64,
    pub packets: u64,
    /// Octets of TCP payload.
    pub octets: u64,
    pub acknowledgements: u64,
    pub peer_cycles: u64,
    pub device_cycles: u64,
    pub fpdus: u64,
    pub retransmitted_segments: u64,
}

impl Measured {
    /// Returns what was counted since `before`; the times are left as they are.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            seconds: self.seconds,
            all_cycles: self.all_cycles,
            packets: self.packets - before.packets,
            octets: self.octets - before.octets,
            acknowledgements: self.acknowledgements - before.acknowledgements,
            peer_cycles: self.peer_cycles - before.peer_cycles,
            device_cycles: self.device_cycles - before.device_cycles,
            fpdus: self.fpdus - before.fpdus,
            retransmitted_segments: self.retransmitted_segments - before.retransmitted_segments,
        }
    }
}

/// A row: what was measured, and its result.
#[derive(Serialize, Clone, Copy, Debug, Default)]
pub struct Row {
    /// `transmit` or `receive`.
    pub direction: &'static str,
    pub mtu: u16,
    pub size: u32,
    pub markers: bool,
    pub crc: bool,
    pub packing: bool,
    pub connections: u16,
    /// Cores that did so at the same time, each with so many connections.
    pub cores: u8,
    /// Packets with data, their bytes of TCP payload, and the FPDUs in them.
    pub packets: u64,
    pub bytes: u64,
    pub fpdus: u64,
    /// Acknowledgements without data, the other way.
    pub acknowledgements: u64,
    pub retransmitted_segments: u64,
    /// Rates of a core that does nothing else: without the time of the peer.
    pub mpps: f64,
    pub mfpdu_per_s: f64,
    pub gbit_per_s: f64,
    /// Cycles of the time stamp counter that the core needs, `net_null` not counted.
    pub cycles_per_packet: f64,
    pub cycles_per_byte: f64,
    /// Cycles that `net_null` needs to take a packet with data, and what it answers.
    pub device_cycles_per_packet: f64,
    /// Cycles of the peer, which the rates leave out.
    pub peer_cycles_per_packet: f64,
    pub cycles_per_s: f64,
}

/// A row of one core or several, and the parts of these.
#[derive(Serialize, Clone, Debug)]
pub struct Outcome {
    #[serde(flatten)]
    row: Row,
    /// By core, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_core: Vec<CoreRow>,
}

/// The part of a core.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct CoreRow {
    core: usize,
    packets: u64,
    bytes: u64,
    fpdus: u64,
    mpps: f64,
    gbit_per_s: f64,
    cycles_per_packet: f64,
}

impl Outcome {
    /// Sums the rows of all cores, of which there is one at least: their rates are added, and what each took
    /// for a packet or a byte is weighed by how many it had.
    pub fn of(rows: &[Row]) -> Self {
        let mut sum = Row { packets: 0, bytes: 0, ..rows[0] };
        let counts = |count: fn(&Row) -> u64| rows.iter().map(count).sum::<u64>();
        let rates = |rate: fn(&Row) -> f64| rows.iter().map(rate).sum::<f64>();
        (sum.packets, sum.bytes) = (counts(|row| row.packets), counts(|row| row.bytes));
        sum.fpdus = counts(|row| row.fpdus);
        sum.acknowledgements = counts(|row| row.acknowledgements);
        sum.retransmitted_segments = counts(|row| row.retransmitted_segments);
        sum.mpps = rates(|row| row.mpps);
        sum.mfpdu_per_s = rates(|row| row.mfpdu_per_s);
        sum.gbit_per_s = rates(|row| row.gbit_per_s);
        let (packets, bytes) = (sum.packets.max(1) as f64, sum.bytes.max(1) as f64);
        let of_packets = |each: fn(&Row) -> f64| {
            rows.iter().map(|row| each(row) * row.packets as f64).sum::<f64>() / packets
        };
        sum.cycles_per_packet = of_packets(|row| row.cycles_per_packet);
        sum.device_cycles_per_packet = of_packets(|row| row.device_cycles_per_packet);
        sum.peer_cycles_per_packet = of_packets(|row| row.peer_cycles_per_packet);
        sum.cycles_per_byte = rates(|row| row.cycles_per_byte * row.bytes as f64) / bytes;
        let by_core = rows.iter().enumerate().filter(|_| rows.len() > 1);
        let by_core = by_core.map(|(core, row)| CoreRow::new(core, row)).collect();
        Self { row: sum, by_core }
    }

    /// Returns the line under [`HEADING`].
    pub fn line(&self) -> String {
        self.row.line()
    }

    /// Returns a line for each core, if there are several.
    pub fn core_lines(&self) -> Vec<String> {
        let line = |core: &CoreRow| {
            let CoreRow { core, mpps, gbit_per_s, cycles_per_packet, .. } = core;
            format!(
                "  core {core}: {mpps:.3} Mpps, {gbit_per_s:.2} Gb/s, {cycles_per_packet:.0} cycles a packet"
            )
        };
        self.by_core.iter().map(line).collect()
    }
}

impl CoreRow {
    const fn new(core: usize, row: &Row) -> Self {
        let &Row { packets, bytes, fpdus, mpps, gbit_per_s, cycles_per_packet, .. } = row;
        Self { core, packets, bytes, fpdus, mpps, gbit_per_s, cycles_per_packet }
    }
}

pub const HEADING: &str = "direction   MTU     size  Mark  CRC  pack      Mpps    M FPDU/s      Gb/s  \
                           cycles/packet  cycles/byte  net_null";

impl Row {
    pub fn transmits(&self) -> bool {
        self.direction == "transmit"
    }

    /// Returns the row with its result.
    pub fn with(self, measured: Measured) -> Self {
        let packets = measured.packets.max(1) as f64;
        let bytes = measured.octets.max(1) as f64;
        let cycles_per_s = measured.all_cycles as f64 / measured.seconds;
        let busy = measured.all_cycles.saturating_sub(measured.peer_cycles).max(1);
        let own = busy.saturating_sub(measured.device_cycles) as f64;
        let seconds = busy as f64 / cycles_per_s.max(1.0);
        Self {
            packets: measured.packets,
            bytes: measured.octets,
            fpdus: measured.fpdus,
            acknowledgements: measured.acknowledgements,
            retransmitted_segments: measured.retransmitted_segments,
            mpps: measured.packets as f64 / seconds / 1e6,
            mfpdu_per_s: measured.fpdus as f64 / seconds / 1e6,
            gbit_per_s: measured.octets as f64 * 8.0 / seconds / 1e9,
            cycles_per_packet: own / packets,
            cycles_per_byte: own / bytes,
            device_cycles_per_packet: measured.device_cycles as f64 / packets,
            peer_cycles_per_packet: measured.peer_cycles as f64 / packets,
            cycles_per_s,
            ..self
        }
    }

    /// Returns the line under [`HEADING`].
    pub fn line(&self) -> String {
        let switch = |on| if on { "on" } else { "off" };
        format!(
            "{:<9}{:>6}{:>9}{:>6}{:>5}{:>6}{:>10.3}{:>12.3}{:>10.2}{:>15.0}{:>13.3}{:>10.0}",
            self.direction,
            self.mtu,
            self.size,
            switch(self.markers),
            switch(self.crc),
            switch(self.packing),
            self.mpps,
            self.mfpdu_per_s,
            self.gbit_per_s,
            self.cycles_per_packet,
            self.cycles_per_byte,
            self.device_cycles_per_packet,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cores, of which one has three times as many packets, at half of the cycles each.
    #[test]
    fn cores_are_added_up() {
        let row = |packets: u64, cycles_per_packet| Row {
            packets,
            bytes: 100 * packets,
            mpps: packets as f64,
            cycles_per_packet,
            cycles_per_byte: cycles_per_packet / 100.0,
            cycles_per_s: 1e9,
            ..Row::default()
        };
        let outcome = Outcome::of(&[row(1, 200.0), row(3, 100.0)]);
        let Outcome { row: sum, by_core } = &outcome;
        assert_eq!((sum.packets, sum.bytes, sum.mpps, sum.cycles_per_s), (4, 400, 4.0, 1e9));
        assert!((sum.cycles_per_packet - 125.0).abs() < 1e-9 && (sum.cycles_per_byte - 1.25).abs() < 1e-9);
        assert_eq!(
            by_core.iter().map(|core| (core.core, core.packets)).collect::<Vec<_>>(),
            [(0, 1), (1, 3)]
        );
        assert_eq!(outcome.core_lines().len(), 2);
        assert!(Outcome::of(&[row(1, 200.0)]).by_core.is_empty());
    }

    /// 1000 packets of 1000 bytes in a second of 2 GHz: a quarter of it is the peer's, an eighth net_null's.
    #[test]
    fn the_peer_is_left_out() {
        let measured = Measured {
            seconds: 1.0,
            all_cycles: 2_000_000_000,
            packets: 1000,
            octets: 1_000_000,
            acknowledgements: 10,
            peer_cycles: 500_000_000,
            device_cycles: 250_000_000,
            fpdus: 3000,
            retransmitted_segments: 0,
        };
        let row = Row::default().with(measured);
        let close = |value: f64, expected: f64| (value - expected).abs() < 1e-9 * expected;
        assert!(close(row.cycles_per_packet, 1_250_000.0));
        assert!(close(row.cycles_per_byte, 1250.0));
        assert!(close(row.device_cycles_per_packet, 250_000.0));
        assert!(close(row.mpps, 1000.0 / 0.75 / 1e6));
        assert!(close(row.mfpdu_per_s, 3000.0 / 0.75 / 1e6));
        assert!(close(row.gbit_per_s, 8e6 / 0.75 / 1e9));
    }
}
