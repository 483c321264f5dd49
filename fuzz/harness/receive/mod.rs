//! The whole receive path under arbitrary input: frames, segments that fit the state of a connection, time,
//! commands, work requests, full rings and devices without buffers, in any order.
//!
//! An input is a list of steps ([`step`]); [`run`] takes them one after another and checks after each that
//! the core keeps its promises: to its peers ([`watch`]), to control and applications ([`control`]), to the
//! granted memory ([`memory`]), and to itself ([`world`]). A run depends on the input alone, so that every
//! failure can be repeated. libFuzzer drives this from `fuzz/`, the tests replay seeds and regressions.

mod checksum;
mod control;
mod conversation;
mod device;
mod frames;
mod input;
mod memory;
mod speech;
mod step;
mod watch;
mod world;

/// Steps of one input: more would only be slower.
const STEPS: usize = 256;

/// Runs one input.
///
/// # Panics
///
/// When the core breaks a promise.
pub fn run(octets: &[u8]) {
    let mut input = input::Input::new(octets);
    let mut world = world::World::new(&mut input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        step::take(&mut world, &mut input);
    }
    world.end();
}
