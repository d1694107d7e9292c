//! jfr-format
