//! The judge of an option list: reads it octet by octet, and the fields of the RDMA option bit by bit.

/// What a list says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has no RDMA option, or the list ends before one.
    Absent,
    /// The length of the first is none of 2, 4, 16 and 20.
    Malformed,
    /// The first has these fields.
    Present(Judged),
}

/// The fields of an RDMA option; those that its form has not are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    pub len: u8,
    pub aligned: bool,
    pub unsolicited: bool,
    pub rid: u64,
    /// Buffer offset, data offset, data length.
    pub numbers: [u32; 3],
    pub total: Option<u32>,
}

/// The number in bits `first` to `last` of an option, counted from its first octet's most significant bit.
fn bits(option: &[u8], first: usize, last: usize) -> u64 {
    (first..=last).fold(0, |number, bit| number << 1 | u64::from(option[bit / 8] >> (7 - bit % 8) & 1))
}

/// Reads the list up to its end, its first RDMA option, or the first option whose length is impossible.
pub fn judge(list: &[u8], kind: u8) -> Verdict {
    let mut at = 0;
    while at < list.len() {
        match list[at] {
            0 => return Verdict::Absent,
            1 => {
                at += 1;
                continue;
            }
            _ => {}
        }
        // A list shorter than a multiple of four is filled up by zeros, which may be a length.
        let octet = |index: usize| list.get(index).copied().unwrap_or(0);
        let len = usize::from(octet(at + 1));
        if len < 2 || at + len > list.len().next_multiple_of(4) {
            return Verdict::Absent;
        }
        let option: Vec<u8> = (at..at + len).map(octet).collect();
        let body = len - 2;
        match option[0] {
            // RFC 9293, RFC 7323, RFC 2018: another length is impossible, and nothing after it counts.
            2 if body != 2 => return Verdict::Absent,
            3 if body != 1 => return Verdict::Absent,
            4 if body != 0 => return Verdict::Absent,
            5 if body % 8 != 0 => return Verdict::Absent,
            8 if body != 8 => return Verdict::Absent,
            first if first == kind => return read(&option),
            _ => at += len,
        }
    }
    Verdict::Absent
}

fn read(option: &[u8]) -> Verdict {
    let mut judged = Judged {
        len: option.len() as u8,
        aligned: false,
        unsolicited: false,
        rid: 0,
        numbers: [0; 3],
        total: None,
    };
    if !matches!(option.len(), 2 | 4 | 16 | 20) {
        return Verdict::Malformed;
    }
    if option.len() > 2 {
        (judged.aligned, judged.unsolicited) = (bits(option, 16, 16) == 1, bits(option, 17, 17) == 1);
    }
    if option.len() > 4 {
        judged.rid = bits(option, 18, 63);
        let fields = [(64, 95), (96, 111), (112, 127)];
        judged.numbers = fields.map(|(first, last)| bits(option, first, last) as u32);
    }
    if option.len() > 16 {
        judged.total = Some(bits(option, 128, 159) as u32);
    }
    Verdict::Present(judged)
}
