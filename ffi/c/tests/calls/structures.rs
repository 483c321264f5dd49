//! Structures and lists as a program has them in memory: of any size, of exactly that size.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::null_mut;

use super::input::Input;

/// A field, or some that follow one another, whose bytes may be anything.
#[derive(Clone, Copy)]
pub struct Field {
    offset: usize,
    len: usize,
}

/// Numbers, and booleans, which are true with every byte but 0.
pub const fn numbers(offset: usize, len: usize) -> Field {
    Field { offset, len }
}

/// Memory of a structure whose first field is its size, on the heap and not one byte longer.
pub struct Sized<T> {
    start: *mut T,
    layout: Option<Layout>,
}

impl<T> Sized<T> {
    /// Returns a structure that begins as `template`, with some bytes changed in `fields`, which are no
    /// pointers or counts. One of eight is null, one has a size of another version or of none.
    pub fn new(input: &mut Input<'_>, template: &T, fields: &[Field]) -> Self {
        let choice = input.octet();
        let known = size_of::<T>();
        let (size, told) = match choice & 7 {
            0 => return Self { start: null_mut(), layout: None },
            1 => match choice >> 3 & 3 {
                // Too small, and never set.
                0 => (8, usize::from(input.octet() % 32)),
                1 => (known, usize::MAX - usize::from(input.octet())),
                // An older version, and a newer one.
                2 => (known - 8, known - 8),
                _ => (known + 16, known + 16),
            },
            _ => (known, known),
        };
        let told = if told < 4096 { told.min(size.max(8)) } else { told };
        let layout = Layout::from_size_align(size.max(8), align_of::<u64>()).unwrap();
        // SAFETY: it has a size.
        let bytes = unsafe { alloc_zeroed(layout) };
        #[allow(clippy::cast_ptr_alignment, reason = "the layout is aligned for eight bytes")]
        let start = bytes.cast::<T>();
        // SAFETY: the memory is as long as `size`, and the template as long as `known`.
        unsafe { bytes.copy_from_nonoverlapping((&raw const *template).cast(), size.min(known)) };
        // SAFETY: the first eight bytes are there.
        unsafe { start.cast::<usize>().write(told) };
        for _ in 0..choice >> 5 {
            let field = fields[input.below(fields.len())];
            let place = field.offset + input.below(field.len);
            if place < size {
                // SAFETY: it is inside.
                unsafe { bytes.add(place).write(input.octet()) };
            }
        }
        if size > known && choice & 0x80 != 0 {
            // SAFETY: the last byte is there.
            unsafe { bytes.add(size - 1).write(input.octet()) };
        }
        Self { start, layout: Some(layout) }
    }

    pub const fn raw(&self) -> *const T {
        self.start
    }
}

impl<T> Drop for Sized<T> {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: it was allocated so.
            unsafe { dealloc(self.start.cast(), layout) };
        }
    }
}

/// Memory of so many bytes; null for one of sixteen.
pub struct Bytes(Option<Box<[u8]>>);

impl Bytes {
    pub fn new(input: &mut Input<'_>, most: usize) -> Self {
        let choice = input.octet();
        if choice == 0xff {
            return Self(None);
        }
        let len = match choice >> 6 {
            0 => usize::from(choice),
            1 => most.min(usize::from(choice) << 6),
            _ => most.min(usize::from(choice & 63)),
        };
        Self(Some(vec![choice; len].into()))
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(8, |bytes| bytes.len())
    }

    pub fn raw(&mut self) -> *mut u8 {
        self.0.as_mut().map_or(null_mut(), |bytes| bytes.as_mut_ptr())
    }
}

/// Returns a pointer, or null for one of sixteen.
pub fn or_null<T>(input: &mut Input<'_>, pointer: *mut T) -> *mut T {
    if input.octet() & 15 == 15 { null_mut() } else { pointer }
}
