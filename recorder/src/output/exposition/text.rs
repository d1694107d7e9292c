//! Prometheus' text format, version 0.0.4.

use std::fmt::Write;

/// Builds a text. All metrics carry the PID of their recorder as a label, because files of several recorders
/// may be in one folder.
pub struct Text {
    out: String,
    recorder: u32,
}

impl Text {
    /// Returns a text without metrics.
    pub fn new(recorder: u32) -> Text {
        Text { out: String::with_capacity(4096), recorder }
    }

    /// Adds a counter.
    pub fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.metric(name, help, "counter", "", &[("", value)]);
    }

    /// Adds a counter for each value of a label.
    pub fn counters(&mut self, name: &str, help: &str, label: &str, values: &[(&str, f64)]) {
        self.metric(name, help, "counter", label, values);
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.metric(name, help, "gauge", "", &[("", value)]);
    }

    /// Adds a gauge for each value of a label.
    pub fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, f64)]) {
        self.metric(name, help, "gauge", label, values);
    }

    fn metric(&mut self, name: &str, help: &str, kind: &str, label: &str, values: &[(&str, f64)]) {
        let Text { out, recorder } = self;
        let _ = writeln!(out, "# HELP flightline_{name} {help}\n# TYPE flightline_{name} {kind}");
        for (of, value) in values {
            let _ = write!(out, "flightline_{name}{{recorder=\"{recorder}\"");
            if !label.is_empty() {
                // The values are our own names, so nothing needs escaping.
                let _ = write!(out, ",{label}=\"{of}\"");
            }
            let _ = writeln!(out, "}} {value}");
        }
    }

    /// Returns the whole text.
    pub fn finish(self) -> String {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_in_exposition_format() {
        let mut text = Text::new(7);
        text.gauge("up", "Whether it records.", 1.0);
        text.counters("lost_total", "Lost.", "cause", &[("ring full", 0.0), ("stopped", 1.5e-3)]);
        assert_eq!(
            text.finish(),
            "# HELP flightline_up Whether it records.\n# TYPE flightline_up gauge\n\
             flightline_up{recorder=\"7\"} 1\n\
             # HELP flightline_lost_total Lost.\n# TYPE flightline_lost_total counter\n\
             flightline_lost_total{recorder=\"7\",cause=\"ring full\"} 0\n\
             flightline_lost_total{recorder=\"7\",cause=\"stopped\"} 0.0015\n"
        );
    }
}
