//! Where the reply to a request goes.

use crossbeam::channel::{self, Receiver, Sender};

/// Where the reply to a request goes. Dropped without a reply when the engine ends.
pub(crate) struct Reply<T>(Destination<T>);

/// The recipient of a reply.
enum Destination<T> {
    /// A thread that waits for it.
    Channel(Sender<T>),
    /// A callback, run by the thread of the engine: with `None` when the engine ends. It must not wait.
    Callback(Option<Callback<T>>),
}

type Callback<T> = Box<dyn FnOnce(Option<T>) + Send>;

impl<T> Drop for Destination<T> {
    fn drop(&mut self) {
        if let Self::Callback(callback) = self
            && let Some(callback) = callback.take()
        {
            callback(None);
        }
    }
}

impl<T> Reply<T> {
    /// Returns a place for one reply, and the end where it is received.
    pub(crate) fn new() -> (Self, Receiver<T>) {
        let (sender, receiver) = channel::bounded(1);
        (Self(Destination::Channel(sender)), receiver)
    }

    /// Returns a place for a reply that `callback` takes: no thread waits for it.
    pub(crate) fn call(callback: impl FnOnce(Option<T>) + Send + 'static) -> Self {
        Self(Destination::Callback(Some(Box::new(callback))))
    }

    /// Delivers the reply. It is dropped if the receiver was dropped.
    pub(crate) fn send(mut self, value: T) {
        match &mut self.0 {
            Destination::Channel(sender) => _ = sender.send(value),
            Destination::Callback(callback) => {
                if let Some(callback) = callback.take() {
                    callback(Some(value));
                }
            }
        }
    }
}
