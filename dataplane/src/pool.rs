//! Nodes allocated once per core and handed out to the queues of its connections, so that a queue costs
//! nothing while it is empty, and the sum over all connections has one bound. Room for all nodes is reserved
//! at once, and none is touched before it is first needed: a large pool costs address space only.

use core::num::NonZeroU32;

/// Names a node of a [`Pool`]: one more than its place, so that no node at all takes no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId(NonZeroU32);

impl NodeId {
    pub(crate) const fn at(index: u32) -> Option<Self> {
        match NonZeroU32::new(index.wrapping_add(1)) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// No node: [`NodeId::at`] returns `None` for it.
const NIL: u32 = u32::MAX;

struct Node<T> {
    value: Option<T>,
    next: u32,
}

/// A bounded number of nodes that hold values of many [`List`]s.
pub(crate) struct Pool<T> {
    /// The nodes that were ever used.
    nodes: Vec<Node<T>>,
    capacity: usize,
    free: u32,
    used: usize,
}

/// A singly linked list whose nodes lie in a [`Pool`]. It must always be used with the same pool.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    /// Returns an empty list.
    pub(crate) const fn new() -> Self {
        Self { head: NIL, tail: NIL }
    }

    /// Returns true if the list is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Returns the first node.
    pub(crate) const fn front(&self) -> Option<NodeId> {
        NodeId::at(self.head)
    }

    /// Returns the last node.
    pub(crate) const fn back(&self) -> Option<NodeId> {
        NodeId::at(self.tail)
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Pool<T> {
    /// Returns a pool of `capacity` free nodes.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity < NIL as usize, "node names are 32 bits");
        Self { nodes: Vec::with_capacity(capacity), capacity, free: NIL, used: 0 }
    }

    /// Returns the address space of a pool of `capacity` nodes, in bytes.
    pub(crate) const fn bytes(capacity: usize) -> usize {
        size_of::<Node<T>>() * capacity
    }

    /// Adds a node that was never used to the free ones, if there is another.
    #[cold]
    fn add_node(&mut self) {
        debug_assert_eq!(self.free, NIL, "free nodes come first");
        if self.nodes.len() < self.capacity {
            self.free = self.nodes.len() as u32;
            self.nodes.push(Node { value: None, next: NIL });
        }
    }

    /// Nodes in use.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// Nodes still free.
    pub(crate) fn free(&self) -> usize {
        self.capacity - self.used
    }

    /// Returns where the value of a node lies, without a look at it.
    #[inline]
    pub(crate) fn place(&self, node: NodeId) -> Option<&Option<T>> {
        Some(&self.nodes.get(node.index())?.value)
    }

    /// Returns the value of a node.
    #[inline]
    pub(crate) fn get(&self, node: NodeId) -> Option<&T> {
        self.nodes.get(node.index())?.value.as_ref()
    }

    /// Returns the value of a node, to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut T> {
        self.nodes.get_mut(node.index())?.value.as_mut()
    }

    /// Returns the value of a node, to change, and the node after it in its list.
    #[inline]
    pub(crate) fn get_mut_and_next(&mut self, node: NodeId) -> Option<(&mut T, Option<NodeId>)> {
        let Node { value, next } = self.nodes.get_mut(node.index())?;
        Some((value.as_mut()?, NodeId::at(*next)))
    }

    /// Returns the node after `node` in its list.
    #[inline]
    pub(crate) fn next(&self, node: NodeId) -> Option<NodeId> {
        let next = self.nodes.get(node.index())?.next;
        NodeId::at(next)
    }

    /// Appends `value` to `list`.
    ///
    /// # Errors
    ///
    /// Returns `value` when no node is free.
    #[inline]
    pub(crate) fn push_back(&mut self, list: &mut List, value: T) -> Result<NodeId, T> {
        if self.free == NIL {
            self.add_node();
        }
        let index = self.free;
        let Some((id, node)) = NodeId::at(index).zip(self.nodes.get_mut(index as usize)) else {
            return Err(value);
        };
        self.free = core::mem::replace(&mut node.next, NIL);
        node.value = Some(value);
        self.used += 1;
        match self.nodes.get_mut(list.tail as usize) {
            Some(last) => last.next = index,
            None => list.head = index,
        }
        list.tail = index;
        Ok(id)
    }

    /// Inserts `value` into `list` after `previous`, or at the front for `None`.
    ///
    /// # Errors
    ///
    /// Returns `value` when no node is free.
    pub(crate) fn insert_after(
        &mut self,
        list: &mut List,
        previous: Option<NodeId>,
        value: T,
    ) -> Result<NodeId, T> {
        if self.free == NIL {
            self.add_node();
        }
        let index = self.free;
        let Some((id, node)) = NodeId::at(index).zip(self.nodes.get_mut(index as usize)) else {
            return Err(value);
        };
        self.free = node.next;
        node.value = Some(value);
        self.used += 1;
        let next = match previous {
            Some(previous) => core::mem::replace(&mut self.nodes[previous.index()].next, index),
            None => core::mem::replace(&mut list.head, index),
        };
        self.nodes[index as usize].next = next;
        if next == NIL {
            list.tail = index;
        }
        Ok(id)
    }

    /// Takes the node after `previous` (the first for `None`) out of `list`.
    pub(crate) fn remove_after(&mut self, list: &mut List, previous: Option<NodeId>) -> Option<T> {
        let index = match previous {
            Some(previous) => self.nodes.get(previous.index())?.next,
            None => list.head,
        };
        let node = self.nodes.get_mut(index as usize)?;
        let value = node.value.take();
        let next = core::mem::replace(&mut node.next, self.free);
        self.free = index;
        self.used -= 1;
        match previous {
            Some(previous) => self.nodes[previous.index()].next = next,
            None => list.head = next,
        }
        if next == NIL {
            list.tail = previous.map_or(NIL, |previous| previous.index() as u32);
        }
        value
    }

    /// Takes the first value out of `list`.
    #[inline]
    pub(crate) fn pop_front(&mut self, list: &mut List) -> Option<T> {
        self.remove_after(list, None)
    }

    /// Drops the first value of `list` in its place.
    #[inline]
    pub(crate) fn drop_front(&mut self, list: &mut List) {
        let index = list.head;
        let Some(node) = self.nodes.get_mut(index as usize) else { return };
        node.value = None;
        list.head = core::mem::replace(&mut node.next, self.free);
        self.free = index;
        self.used -= 1;
        if list.head == NIL {
            list.tail = NIL;
        }
    }

    /// Returns the nodes of `list`, in order.
    #[cfg(test)]
    fn iter<'p>(&'p self, list: &List) -> impl Iterator<Item = (NodeId, &'p T)> {
        let mut at = list.front();
        core::iter::from_fn(move || {
            let node = at?;
            at = self.next(node);
            Some((node, self.get(node)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pool: &Pool<u32>, list: &List) -> Vec<u32> {
        pool.iter(list).map(|(_, value)| *value).collect()
    }

    #[test]
    fn lists_share_the_nodes() {
        let mut pool = Pool::new(3);
        let (mut a, mut b) = (List::new(), List::new());
        pool.push_back(&mut a, 1).unwrap();
        pool.push_back(&mut b, 2).unwrap();
        pool.push_back(&mut a, 3).unwrap();
        assert_eq!(pool.push_back(&mut b, 4), Err(4), "all nodes are taken");
        assert_eq!((values(&pool, &a), values(&pool, &b)), (vec![1, 3], vec![2]));
        assert_eq!(pool.pop_front(&mut a), Some(1));
        pool.push_back(&mut b, 4).unwrap();
        assert_eq!(values(&pool, &b), [2, 4]);
        assert_eq!((pool.pop_front(&mut a), pool.pop_front(&mut a)), (Some(3), None));
        assert_eq!(pool.pop_front(&mut b), Some(2));
        pool.drop_front(&mut b);
        assert_eq!(pool.pop_front(&mut b), None);
        pool.drop_front(&mut b);
        assert!(a.is_empty() && b.is_empty());
        assert_eq!((pool.used(), pool.free()), (0, 3));
    }

    #[test]
    fn insertion_and_removal_keep_both_ends() {
        let mut pool = Pool::new(8);
        let mut list = List::new();
        let two = pool.push_back(&mut list, 2).unwrap();
        pool.insert_after(&mut list, None, 1).unwrap();
        pool.insert_after(&mut list, Some(two), 4).unwrap();
        pool.insert_after(&mut list, Some(two), 3).unwrap();
        assert_eq!(values(&pool, &list), [1, 2, 3, 4]);
        assert_eq!(pool.remove_after(&mut list, Some(two)), Some(3));
        assert_eq!(pool.remove_after(&mut list, Some(two)), Some(4));
        assert_eq!(pool.remove_after(&mut list, Some(two)), None);
        assert_eq!(list.back(), Some(two));
        pool.push_back(&mut list, 5).unwrap();
        assert_eq!(values(&pool, &list), [1, 2, 5]);
    }
}
