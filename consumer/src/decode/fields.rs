//! Fields of events and constants. Malformed fields count as missing.
