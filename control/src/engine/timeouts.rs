//! How long the engine waits where no configuration says it.

use warpline_dataplane::time::SECOND;

/// How long a connection that this end has finished may take to close before it is reset.
pub(super) const LINGER_NS: u64 = 5 * SECOND;

/// How long after a connect's deadline the engine waits for the core. A core that is polled reports by the
/// deadline.
pub(super) const UNANSWERED_NS: u64 = SECOND;
