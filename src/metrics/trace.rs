//! What the recorder of traces did and could not do.

use prometheus::{IntCounter, Registry};

/// Handles of `sidebeat_trace_*`. All stay zero without `[trace] path`.
#[derive(Debug)]
pub struct TraceMetrics {
    /// Records that did not fit into the buffer or could not be written.
    pub dropped: IntCounter,
    /// Bytes written.
    pub bytes: IntCounter,
    /// Files begun.
    pub files: IntCounter,
    /// Attempts to write that failed.
    pub errors: IntCounter,
    /// Links beyond `[trace] links`.
    pub unrecorded_links: IntCounter,
}

impl TraceMetrics {
    pub(super) fn new(r: &Registry) -> TraceMetrics {
        let counter = |name, help| super::counter(r, name, help);
        TraceMetrics {
            dropped: counter(
                "sidebeat_trace_dropped_total",
                "Records of the trace that were lost: the writer or the disk did not keep up.",
            ),
            bytes: counter("sidebeat_trace_bytes_total", "Bytes written to traces."),
            files: counter("sidebeat_trace_files_total", "Trace files begun."),
            errors: counter("sidebeat_trace_errors_total", "Attempts to write a trace that failed."),
            unrecorded_links: counter(
                "sidebeat_trace_unrecorded_links_total",
                "Links that were not recorded because as many as `[trace] links` were.",
            ),
        }
    }
}
