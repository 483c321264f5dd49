//! Direct Data Placement (RFC 5041).
