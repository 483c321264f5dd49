//! One poll loop: frames in, frames out, connections and queue pairs between.
