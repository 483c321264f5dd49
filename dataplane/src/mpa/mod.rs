//! Marker PDU Aligned framing (RFC 5044).
