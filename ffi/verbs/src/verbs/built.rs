//! Sends that a program builds call by call, until they are posted.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use warpline::{SendRequest, limits};

use super::section::Section;
use crate::abi::{ibv_send_wr, ibv_sge};
use crate::errno::Errno;

/// Bytes that a send may have inline.
pub(crate) const INLINE_MAX: usize = 256;

/// What a program has built of sends, and the section of the thread that does.
#[derive(Default)]
pub(crate) struct Posting {
    pub(crate) section: Section,
    built: Mutex<Built>,
}

#[derive(Default)]
pub(crate) struct Built {
    pub(crate) sends: Vec<Send>,
    /// The first that went wrong since the section began.
    pub(crate) error: Option<Errno>,
    /// Where the sends are gathered to be posted.
    pub(crate) requests: Vec<SendRequest>,
}

/// A send that is being built.
pub(crate) struct Send {
    pub(crate) wr: ibv_send_wr,
    pub(crate) data: Data,
}

/// What a send takes along.
pub(crate) enum Data {
    None,
    Ranges(ArrayVec<ibv_sge, { limits::SCATTER_GATHER_ELEMENTS }>),
    Inline(ArrayVec<u8, INLINE_MAX>),
}

// SAFETY: the pointers in a work request are the program's, which are handed on for it alone.
unsafe impl std::marker::Send for Send {}

impl Built {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.sends.clear();
        self.error = None;
    }

    /// Has the posting fail.
    pub(crate) fn refuse(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
    }
}

impl Posting {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Built> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
