//! Values of many connections kept in order, in nodes that are allocated once per core: a balanced tree for
//! each connection, so that no order in which a peer sends makes a search long.
//!
//! The trees are AVL trees: with n values no path has more than 1.45 log2(n + 2) nodes, 17 for 2560 values. A
//! value may carry marks, and each node has the union of the marks below it, so that the next value with a
//! mark is found in one descent too.

#[cfg(test)]
mod tests;

use core::cell::Cell;
use core::fmt;

use arrayvec::ArrayVec;

use crate::pool::NodeId;

/// A value that an [`OrderedSet`] keeps in order.
pub trait Ordered {
    /// The key by which the values of a set are ordered. It is unique in the set.
    type Key: Copy + PartialOrd;

    /// The key of this value.
    fn key(&self) -> Self::Key;
}

/// Marks of a value: any bits except [`ANY`].
pub(crate) type Marks = u8;

/// Searches with it find every value, marked or not.
pub(crate) const ANY: Marks = 0x80;

/// No node.
const NIL: u32 = u32::MAX;

/// Nodes on a path at most: an AVL tree with 2^32 values is less than 47 high.
const PATH_NODES_MAX: usize = 48;

/// The nodes from the root to the parent of a position, each with the side that the path takes.
type Path = ArrayVec<(u32, usize), PATH_NODES_MAX>;

const LEFT: usize = 0;
const RIGHT: usize = 1;

struct Node<T> {
    value: Option<T>,
    /// The subtrees. Of a free node, the first names the next free one.
    children: [u32; 2],
    /// Nodes on the longest path down from here, this one included.
    height: u8,
    marks: Marks,
    /// The marks of this node and of all below it.
    marks_below: Marks,
}

/// A bounded number of nodes that hold the values of many [`OrderedSet`]s. Room for all of them is reserved
/// at once, and none is touched before it is first needed.
pub struct OrderedPool<T> {
    /// The nodes that were ever used.
    nodes: Vec<Node<T>>,
    capacity: usize,
    free: u32,
    used: usize,
    visits: Cell<u64>,
}

/// Values in order, whose nodes lie in an [`OrderedPool`]. It must always be used with the same pool.
pub struct OrderedSet {
    root: u32,
    len: u32,
}

impl OrderedSet {
    /// An empty set.
    pub const fn new() -> Self {
        Self { root: NIL, len: 0 }
    }

    /// Values in the set.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if the set has no value.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for OrderedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Which node is the root, and its place in the pool, say how the set came about, and nothing of it.
        let Self { root: _, len } = self;
        f.debug_struct("OrderedSet").field("len", len).finish_non_exhaustive()
    }
}

impl Default for OrderedSet {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OrderedPool<T> {
    /// Returns a pool of `capacity` free nodes.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity < NIL as usize, "node names are 32 bits");
        Self { nodes: Vec::with_capacity(capacity), capacity, free: NIL, used: 0, visits: Cell::new(0) }
    }

    /// Adds a node that was never used to the free ones, if there is another.
    #[cold]
    fn add_node(&mut self) {
        debug_assert_eq!(self.free, NIL, "free nodes come first");
        if self.nodes.len() < self.capacity {
            self.free = self.nodes.len() as u32;
            self.nodes.push(Node { value: None, children: [NIL; 2], height: 0, marks: 0, marks_below: 0 });
        }
    }

    /// Nodes in use.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Nodes still free.
    pub const fn free(&self) -> usize {
        self.capacity - self.used
    }

    /// Nodes that searches, insertions and removals have looked at so far.
    pub fn visits(&self) -> u64 {
        self.visits.get()
    }

    fn count_visits(&self, nodes: usize) {
        self.visits.set(self.visits.get() + nodes as u64);
    }

    /// Returns the value of a node. The node is that of the value until a value is inserted into, or taken
    /// out of, its set.
    #[inline]
    pub fn get(&self, node: NodeId) -> Option<&T> {
        self.nodes.get(node.index())?.value.as_ref()
    }

    /// Returns the value of a node, to change it. Its key must not change.
    #[inline]
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut T> {
        self.nodes.get_mut(node.index())?.value.as_mut()
    }

    /// Returns the marks of a node, [`ANY`] among them.
    #[inline]
    pub fn marks(&self, node: NodeId) -> Marks {
        self.nodes[node.index()].marks
    }

    fn marks_below(&self, at: u32) -> Marks {
        self.nodes.get(at as usize).map_or(0, |node| node.marks_below)
    }

    fn height(&self, at: u32) -> u8 {
        self.nodes.get(at as usize).map_or(0, |node| node.height)
    }

    /// Derives the height and marks of the subtree at `at` from its children.
    fn sum_up(&mut self, at: u32) {
        let [left, right] = self.nodes[at as usize].children;
        let height = 1 + self.height(left).max(self.height(right));
        let below = self.marks_below(left) | self.marks_below(right);
        let node = &mut self.nodes[at as usize];
        node.height = height;
        node.marks_below = node.marks | below;
    }

    /// Rotates the child of `at` at `side` into the position of `at`. Returns the child.
    fn rotate(&mut self, at: u32, side: usize) -> u32 {
        let child = self.nodes[at as usize].children[side];
        self.nodes[at as usize].children[side] = self.nodes[child as usize].children[1 - side];
        self.nodes[child as usize].children[1 - side] = at;
        self.sum_up(at);
        self.sum_up(child);
        child
    }

    /// Restores the balance of the subtree at `at`, whose children are balanced and differ by two at most.
    /// Returns its root.
    fn balance(&mut self, at: u32) -> u32 {
        let [left, right] = self.nodes[at as usize].children;
        let (left_height, right_height) = (self.height(left), self.height(right));
        let (side, child) = if left_height > right_height + 1 {
            (LEFT, left)
        } else if right_height > left_height + 1 {
            (RIGHT, right)
        } else {
            self.sum_up(at);
            return at;
        };
        let grandchildren = self.nodes[child as usize].children;
        if self.height(grandchildren[1 - side]) > self.height(grandchildren[side]) {
            let top = self.rotate(child, 1 - side);
            self.nodes[at as usize].children[side] = top;
        }
        self.rotate(at, side)
    }

    /// Links `top` where `path` ends.
    fn link(&mut self, set: &mut OrderedSet, path: &[(u32, usize)], top: u32) {
        match path.last() {
            Some(&(parent, side)) => self.nodes[parent as usize].children[side] = top,
            None => set.root = top,
        }
    }

    /// Balances the nodes of `path` and updates their heights and marks, from the last one on. Above the
    /// first `changed` nodes it ends at the first node that does not change.
    #[inline]
    fn retrace(&mut self, set: &mut OrderedSet, path: &[(u32, usize)], changed: usize) {
        if !path.is_empty() {
            self.count_visits(path.len());
            self.retrace_nodes(set, path, changed);
        }
    }

    fn retrace_nodes(&mut self, set: &mut OrderedSet, path: &[(u32, usize)], changed: usize) {
        for end in (0..path.len()).rev() {
            let (at, _) = path[end];
            let node = &self.nodes[at as usize];
            let before = (node.height, node.marks_below);
            let top = self.balance(at);
            if top != at {
                self.link(set, &path[..end], top);
            }
            let node = &self.nodes[top as usize];
            if end >= changed {
                continue;
            }
            if top == at && before == (node.height, node.marks_below) {
                return;
            }
        }
    }
}

impl<T: Ordered> OrderedPool<T> {
    fn key(&self, at: u32) -> Option<T::Key> {
        self.nodes.get(at as usize)?.value.as_ref().map(T::key)
    }

    /// Finds the first value with any of `marks` among those for which `fits` holds: it holds for none up to
    /// some key, and for all from there on.
    #[inline]
    pub fn first(&self, set: &OrderedSet, marks: Marks, fits: impl Fn(T::Key) -> bool) -> Option<NodeId> {
        self.find(set, marks, RIGHT, fits)
    }

    /// Finds the last value with any of `marks` among those for which `fits` holds: it holds for all up to
    /// some key, and for none from there on.
    #[inline]
    pub fn last(&self, set: &OrderedSet, marks: Marks, fits: impl Fn(T::Key) -> bool) -> Option<NodeId> {
        self.find(set, marks, LEFT, fits)
    }

    /// Finds the outermost value with any of `marks` for which `fits` holds, if it holds for all values
    /// towards `side`.
    #[inline]
    fn find(
        &self,
        set: &OrderedSet,
        marks: Marks,
        side: usize,
        fits: impl Fn(T::Key) -> bool,
    ) -> Option<NodeId> {
        // The best node so far, and whether it is the root of a subtree in which one is to be found.
        let (mut found, mut in_subtree) = (NIL, false);
        let (mut at, mut visits) = (set.root, 0);
        while let Some(key) = self.key(at) {
            visits += 1;
            let node = &self.nodes[at as usize];
            if !fits(key) {
                at = node.children[side];
                continue;
            }
            let towards = node.children[side];
            if node.marks & marks != 0 {
                (found, in_subtree) = (at, false);
            } else if self.marks_below(towards) & marks != 0 {
                (found, in_subtree) = (towards, true);
            }
            at = node.children[1 - side];
        }
        while in_subtree {
            visits += 1;
            let node = &self.nodes[found as usize];
            let away = node.children[1 - side];
            if self.marks_below(away) & marks != 0 {
                found = away;
            } else if node.marks & marks != 0 {
                in_subtree = false;
            } else {
                found = node.children[side];
            }
        }
        self.count_visits(visits);
        NodeId::at(found)
    }

    /// Finds the node that has `key`, if there is one. Adds the nodes before it to `path`, which is empty.
    fn path_to(&self, set: &OrderedSet, key: T::Key, path: &mut Path) -> u32 {
        let mut at = set.root;
        while let Some(other) = self.key(at) {
            if other == key {
                break;
            }
            let side = if key < other { LEFT } else { RIGHT };
            path.push((at, side));
            at = self.nodes[at as usize].children[side];
        }
        self.count_visits(path.len());
        at
    }

    /// Inserts `value`, with `marks`, into `set`.
    ///
    /// # Errors
    ///
    /// Returns `value` if no node is free.
    pub fn insert(&mut self, set: &mut OrderedSet, value: T, marks: Marks) -> Result<NodeId, T> {
        if self.free == NIL {
            self.add_node();
        }
        let index = self.free;
        let Some(id) = NodeId::at(index).filter(|_| (index as usize) < self.nodes.len()) else {
            return Err(value);
        };
        let mut path = Path::new();
        let other = self.path_to(set, value.key(), &mut path);
        debug_assert_eq!(other, NIL, "two values at one place");
        let marks = marks | ANY;
        let node = &mut self.nodes[index as usize];
        self.free = node.children[LEFT];
        *node = Node { value: Some(value), children: [NIL; 2], height: 1, marks, marks_below: marks };
        self.used += 1;
        set.len += 1;
        self.link(set, &path, index);
        self.retrace(set, &path, path.len());
        Ok(id)
    }

    /// Replaces the marks of the value at `key`, which `set` has.
    pub fn set_marks(&mut self, set: &mut OrderedSet, key: T::Key, marks: Marks) {
        let mut path = Path::new();
        let at = self.path_to(set, key, &mut path);
        let Some(node) = self.nodes.get_mut(at as usize) else { return };
        node.marks = marks | ANY;
        self.sum_up(at);
        self.retrace(set, &path, path.len());
    }

    /// Takes the value at `key` out of `set`.
    pub fn remove(&mut self, set: &mut OrderedSet, key: T::Key) -> Option<T> {
        let mut path = Path::new();
        let mut at = self.path_to(set, key, &mut path);
        let [left, right] = self.nodes.get(at as usize)?.children;
        let changed = path.len();
        if left != NIL && right != NIL {
            // The value that comes next has no left subtree: it takes the place of this one, and its node
            // goes.
            let place = at;
            path.push((at, RIGHT));
            at = right;
            while self.nodes[at as usize].children[LEFT] != NIL {
                path.push((at, LEFT));
                at = self.nodes[at as usize].children[LEFT];
            }
            let next = self.nodes[at as usize].value.take();
            let marks = self.nodes[at as usize].marks;
            let node = &mut self.nodes[place as usize];
            node.marks = marks;
            let value = core::mem::replace(&mut node.value, next);
            self.nodes[at as usize].value = value;
        }
        let [left, right] = self.nodes[at as usize].children;
        self.link(set, &path, if left == NIL { right } else { left });
        self.retrace(set, &path, changed);
        self.release(set, at)
    }

    /// Takes the first value out of `set`.
    #[inline]
    pub fn pop_first(&mut self, set: &mut OrderedSet) -> Option<T> {
        let mut path = Path::new();
        let mut at = set.root;
        let mut children = self.nodes.get(at as usize)?.children;
        while children[LEFT] != NIL {
            path.push((at, LEFT));
            at = children[LEFT];
            children = self.nodes[at as usize].children;
        }
        self.count_visits(1 + path.len());
        self.link(set, &path, children[RIGHT]);
        self.retrace(set, &path, path.len());
        self.release(set, at)
    }

    fn release(&mut self, set: &mut OrderedSet, at: u32) -> Option<T> {
        let node = &mut self.nodes[at as usize];
        node.children[LEFT] = self.free;
        self.free = at;
        self.used -= 1;
        set.len -= 1;
        node.value.take()
    }

    /// Frees every node of `set`.
    pub fn clear(&mut self, set: &mut OrderedSet) {
        while self.pop_first(set).is_some() {}
    }
}
