//! Tests of ordered sets against a `BTreeMap`, and of the bounds on their work.

use std::collections::BTreeMap;

use super::*;
use crate::wire::tcp::SeqNumber;

struct Value {
    key: u64,
    octets: u32,
}

impl Ordered for Value {
    type Key = u64;

    fn key(&self) -> u64 {
        self.key
    }
}

const fn value(key: u64) -> Value {
    Value { key, octets: key as u32 ^ 0x55 }
}

impl<T: Ordered> OrderedPool<T> {
    /// Checks every node below `at` by counting; returns the height.
    fn check(&self, at: u32, keys: &mut Vec<T::Key>) -> (u8, Marks) {
        let Some(node) = self.nodes.get(at as usize) else { return (0, 0) };
        let (left, left_marks) = self.check(node.children[LEFT], keys);
        keys.push(node.value.as_ref().expect("a node in a set has a value").key());
        let (right, right_marks) = self.check(node.children[RIGHT], keys);
        assert!(left.abs_diff(right) <= 1, "{left} against {right}");
        assert_eq!(node.height, 1 + left.max(right));
        assert_eq!(node.marks_below, node.marks | left_marks | right_marks);
        assert_ne!(node.marks & ANY, 0);
        (node.height, node.marks_below)
    }
}

fn keys(pool: &OrderedPool<Value>, set: &OrderedSet) -> Vec<u64> {
    let mut keys = Vec::new();
    pool.check(set.root, &mut keys);
    assert_eq!(keys.len(), set.len());
    keys
}

#[test]
fn sets_share_the_nodes() {
    let mut pool = OrderedPool::new(3);
    let (mut a, mut b) = (OrderedSet::new(), OrderedSet::new());
    pool.insert(&mut a, value(3), 0).ok().unwrap();
    pool.insert(&mut b, value(2), 0).ok().unwrap();
    pool.insert(&mut a, value(1), 0).ok().unwrap();
    assert_eq!(pool.insert(&mut b, value(4), 0).err().unwrap().key, 4, "all nodes are taken");
    assert_eq!((keys(&pool, &a), keys(&pool, &b)), (vec![1, 3], vec![2]));
    assert_eq!(pool.pop_first(&mut a).unwrap().key, 1);
    pool.insert(&mut b, value(4), 0).ok().unwrap();
    assert_eq!(keys(&pool, &b), [2, 4]);
    pool.clear(&mut a);
    pool.clear(&mut b);
    assert_eq!((pool.used(), pool.free(), a.len(), b.is_empty()), (0, 3, 0, true));
    assert!(pool.pop_first(&mut a).is_none());
}

/// Random changes, against the ordered map of the standard library.
#[test]
fn it_is_what_an_ordered_map_is() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut pool, mut set, mut model) = (OrderedPool::new(64), OrderedSet::new(), BTreeMap::new());
        for _ in 0..600 {
            let key = rng.u64(..100);
            let marks = rng.u8(..8) & rng.u8(..8);
            match rng.u32(..8) {
                0..4 if !model.contains_key(&key) => {
                    let inserted = pool.insert(&mut set, value(key), marks).is_ok();
                    assert_eq!(inserted, model.len() < 64);
                    if inserted {
                        model.insert(key, marks);
                    }
                }
                4 => {
                    let removed = pool.remove(&mut set, key);
                    assert_eq!(
                        removed.as_ref().map(|value| value.octets),
                        model.get(&key).map(|_| key as u32 ^ 0x55)
                    );
                    model.remove(&key);
                }
                5 => {
                    let popped = pool.pop_first(&mut set).map(|value| value.key);
                    assert_eq!(popped, model.pop_first().map(|(key, _)| key));
                }
                6 => {
                    if let Some(known) = model.get_mut(&key) {
                        *known = marks;
                        pool.set_marks(&mut set, key, marks);
                    }
                }
                _ => {}
            }
            assert_eq!(keys(&pool, &set), model.keys().copied().collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(pool.used(), model.len());
            for mask in [ANY, 1, 2, 6] {
                let has = |(key, marks): (&u64, &u8)| ((marks | ANY) & mask != 0).then_some(*key);
                let key_of =
                    |node: Option<NodeId>| node.and_then(|node| pool.get(node)).map(|value| value.key);
                let first = pool.first(&set, mask, |other| other > key);
                assert_eq!(key_of(first), model.range(key + 1..).find_map(has), "seed {seed}");
                let last = pool.last(&set, mask, |other| other <= key);
                assert_eq!(key_of(last), model.range(..=key).rev().find_map(has), "seed {seed}");
            }
        }
    }
}

/// No operation takes more steps than the height of the tree, whatever the order of insertion.
#[test]
fn no_order_of_insertion_makes_a_search_long() {
    let count = 2560;
    let orders: [fn(u64) -> u64; 4] =
        [|n| n, |n| 10_000 - n, |n| if n % 2 == 0 { n } else { 10_000 - n }, |n| n * 1597 % 2560];
    for order in orders {
        let (mut pool, mut set) = (OrderedPool::new(count), OrderedSet::new());
        let mut most = 0;
        let mut at_most = |pool: &OrderedPool<Value>, before: u64| most = most.max(pool.visits() - before);
        for n in 0..count as u64 {
            let before = pool.visits();
            // Marked as a peer would have it: the mark that is looked for is far away.
            let mark = Marks::from(n == 0);
            pool.insert(&mut set, value(order(n)), mark).ok().unwrap();
            at_most(&pool, before);
        }
        for n in 0..count as u64 {
            let before = pool.visits();
            pool.first(&set, 1, |key| key >= order(n));
            at_most(&pool, before);
            let before = pool.visits();
            pool.last(&set, 1, |key| key <= order(n));
            at_most(&pool, before);
        }
        for n in 0..count as u64 {
            let before = pool.visits();
            pool.remove(&mut set, order(n)).unwrap();
            at_most(&pool, before);
        }
        // 17 down and 17 up.
        assert!(most <= 34, "{most} nodes");
    }
}

/// Sequence numbers wrap, and their order with them.
#[test]
fn keys_may_wrap() {
    struct At(SeqNumber);
    impl Ordered for At {
        type Key = SeqNumber;
        fn key(&self) -> SeqNumber {
            self.0
        }
    }
    let start = SeqNumber(0xffff_fff0);
    let (mut pool, mut set) = (OrderedPool::new(32), OrderedSet::new());
    for n in (0..32).rev() {
        pool.insert(&mut set, At(start + n), 0).ok().unwrap();
    }
    for n in 0..32 {
        let node = pool.last(&set, ANY, |key| key <= start + n).unwrap();
        assert_eq!(pool.get(node).unwrap().0, start + n);
    }
    for n in 0..32 {
        assert_eq!(pool.pop_first(&mut set).unwrap().0, start + n);
    }
}
