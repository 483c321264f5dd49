//! A ring of frames from one core to another, which moves bursts: one producer, one consumer.
//!
//! Under `--cfg loom` a queue that the model of memory knows takes its place. It promises what the ring does
//! here: a consumer that sees a frame sees what its producer did before.

#[cfg(loom)]
pub(super) use model::{RingConsumer, RingProducer, ring};

#[cfg(not(loom))]
pub(super) use bursts::{RingConsumer, RingProducer, ring};

#[cfg(not(loom))]
mod bursts {
    use crate::tally;

    use rtrb::chunks::ChunkError;
    use rtrb::{Consumer, Producer, RingBuffer};

    /// The end of a ring that frames are put into.
    pub(in super::super) struct RingProducer<F>(Producer<F>);

    /// The end of a ring that frames are taken from.
    pub(in super::super) struct RingConsumer<F>(Consumer<F>);

    /// Returns both ends of a ring with room for `frames` frames.
    pub(in super::super) fn ring<F>(frames: usize) -> (RingProducer<F>, RingConsumer<F>) {
        let (producer, consumer) = RingBuffer::new(frames);
        (RingProducer(producer), RingConsumer(consumer))
    }

    impl<F> RingProducer<F> {
        /// Moves frames from the front of `frames` into the ring, as many as there is room for. Returns how
        /// many.
        pub(in super::super) fn push_burst(&mut self, frames: &mut Vec<F>) -> usize {
            // The consumer's progress, which lies in its cache, is looked at only if there seems to be no
            // room.
            let chunk = match self.0.write_chunk_uninit(frames.len()) {
                Ok(chunk) => chunk,
                Err(ChunkError::TooFewSlots(slots)) => match self.0.write_chunk_uninit(slots) {
                    Ok(chunk) => chunk,
                    Err(ChunkError::TooFewSlots(_)) => return 0,
                },
            };
            let room = chunk.len();
            tally::record_shared_write();
            chunk.fill_from_iter(frames.drain(..room))
        }

        /// Whether the other end is gone: nothing is taken from the ring any more.
        pub(in super::super) fn is_abandoned(&self) -> bool {
            self.0.is_abandoned()
        }

        /// Puts one frame into the ring.
        ///
        /// # Errors
        ///
        /// `frame`, if there is no room.
        pub(in super::super) fn push(&mut self, frame: F) -> Result<(), F> {
            tally::record_shared_write();
            self.0.push(frame).map_err(|rtrb::PushError::Full(frame)| frame)
        }
    }

    impl<F> RingConsumer<F> {
        /// Moves up to `limit` frames to the end of `frames`. Returns how many: fewer if there are no more.
        pub(in super::super) fn pop_burst(&mut self, frames: &mut Vec<F>, limit: usize) -> usize {
            let chunk = match self.0.read_chunk(limit) {
                Ok(chunk) => chunk,
                Err(ChunkError::TooFewSlots(slots)) => match self.0.read_chunk(slots) {
                    Ok(chunk) => chunk,
                    Err(ChunkError::TooFewSlots(_)) => return 0,
                },
            };
            let count = chunk.len();
            tally::record_shared_write();
            frames.extend(chunk);
            count
        }
    }
}

#[cfg(loom)]
mod model {
    use std::sync::Arc;

    use crate::sync::ArrayQueue;

    pub(in super::super) struct RingProducer<F>(Arc<ArrayQueue<F>>);

    pub(in super::super) struct RingConsumer<F>(Arc<ArrayQueue<F>>);

    pub(in super::super) fn ring<F>(frames: usize) -> (RingProducer<F>, RingConsumer<F>) {
        let queue = Arc::new(ArrayQueue::new(frames));
        (RingProducer(queue.clone()), RingConsumer(queue))
    }

    impl<F> RingProducer<F> {
        pub(in super::super) fn push_burst(&mut self, frames: &mut Vec<F>) -> usize {
            let before = frames.len();
            while !frames.is_empty() {
                if let Err(refused) = self.0.push(frames.remove(0)) {
                    frames.insert(0, refused);
                    break;
                }
            }
            before - frames.len()
        }

        pub(in super::super) fn is_abandoned(&self) -> bool {
            Arc::strong_count(&self.0) == 1
        }

        pub(in super::super) fn push(&mut self, frame: F) -> Result<(), F> {
            self.0.push(frame)
        }
    }

    impl<F> RingConsumer<F> {
        pub(in super::super) fn pop_burst(&mut self, frames: &mut Vec<F>, limit: usize) -> usize {
            let before = frames.len();
            frames.extend((0..limit).map_while(|_| self.0.pop()));
            frames.len() - before
        }
    }
}
