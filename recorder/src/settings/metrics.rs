//! Settings of metrics.

use std::time::Duration;

use crate::output::exposition::ExpositionSettings;

/// The metrics to record and to expose.
#[derive(Clone, Debug)]
pub struct MetricsSettings {
    /// Interval of process and machine metrics. `None`: they are not recorded.
    pub interval: Option<Duration>,
    /// The destinations of the recorder's own metrics.
    pub exposition: ExpositionSettings,
}

impl Default for MetricsSettings {
    fn default() -> MetricsSettings {
        MetricsSettings { interval: Some(Duration::from_secs(1)), exposition: ExpositionSettings::default() }
    }
}
