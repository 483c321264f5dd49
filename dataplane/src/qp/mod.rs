//! Queue pairs: work requests in, completions out.
