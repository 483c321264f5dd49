//! Replays the seeds and regressions of the fuzz target `tcp_options`, and random inputs.

#[path = "../../fuzz/harness/inputs.rs"]
mod inputs;
#[path = "../../fuzz/harness/tcp_options/mod.rs"]
mod tcp_options;

use std::collections::BTreeMap;

use inputs::Inputs;
use tcp_options::End;

/// Every possible end.
const ENDS: [End; 7] = [
    End::Absent,
    End::Malformed,
    End::Length(2),
    End::Length(4),
    End::Length(16),
    End::Length(20),
    End::Crowded,
];

fn reaches_everything(reached: &BTreeMap<End, usize>, at_least: usize) {
    for end in ENDS {
        assert!(reached.get(&end).is_some_and(|count| *count >= at_least), "{end:?}: {reached:?}");
    }
}

// Requirements: TRO-3.1-01, TRO-3.1-02, TRO-3.1.8-02, TRO-3.1.8-03, TRO-3.3-01
#[test]
fn seeds_and_regressions_run() {
    let Inputs { seeds, regressions } = inputs::inputs("tcp_options");
    let mut reached = BTreeMap::new();
    for (name, octets) in seeds.into_iter().chain(regressions) {
        println!("{name}");
        *reached.entry(tcp_options::run(&octets)).or_default() += 1;
    }
    reaches_everything(&reached, 1);
}

/// Lists of options whose lengths are often, but not always, those of their kinds.
// Requirements: TRO-3.1-01, TRO-3.1-02, TRO-3.1.8-02, TRO-3.1.8-03, TRO-3.3-01
#[test]
fn random_inputs_run() {
    let mut reached = BTreeMap::new();
    for seed in 0..60_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut list = Vec::new();
        while list.len() < 40 {
            let (kind, lens): (u8, &[u8]) = match rng.u8(..9) {
                0 => (rng.u8(..2), &[]),
                1 => (2, &[4]),
                2 => (3, &[3]),
                3 => (4, &[2]),
                4 => (5, &[10, 18]),
                5 => (8, &[10]),
                6 => (rng.u8(..), &[2, 3, 4, 7]),
                _ => (25, &[2, 4, 16, 20]),
            };
            list.push(kind);
            if !lens.is_empty() {
                let usual = rng.u8(..16) > 0;
                let len = if usual { lens[rng.usize(..lens.len())] } else { rng.u8(..42) };
                list.push(len);
                list.extend((2..len).map(|_| rng.u8(..)));
            }
        }
        list.truncate(40);
        let mut octets = vec![if rng.u8(..8) > 0 { 25 } else { rng.u8(..) }, list.len() as u8];
        octets.extend(list);
        println!("seed {seed}");
        *reached.entry(tcp_options::run(&octets)).or_default() += 1;
    }
    reaches_everything(&reached, 20);
}
