//! Logs on stderr, as text or JSON, with a level that can be changed while running.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::config::{Filter, Log, LogFormat, parse_filter};

/// Changes the level of a running process (`POST /log?level=`). Clones act on the same filter.
#[derive(Clone, Debug)]
pub struct LogHandle {
    handle: reload::Handle<Targets, Registry>,
    level: Arc<Mutex<String>>,
}

/// Installs the subscriber for the whole process. Only the first call has an effect; the handle of a later
/// one changes nothing.
pub fn init(log: &Log) -> LogHandle {
    let (subscriber, handle) = subscriber(log);
    let _ = subscriber.try_init();
    handle
}

fn subscriber(log: &Log) -> (impl Subscriber + Send + Sync, LogHandle) {
    let (filter, handle) = reload::Layer::new(targets(&parse_filter(&log.level).unwrap_or_default()));
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let layer = fmt::layer().with_writer(std::io::stderr);
    let layer = match log.format {
        LogFormat::Text => layer.with_ansi(ansi).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_ansi(false).boxed(),
    };
    let handle = LogHandle { handle, level: Arc::new(Mutex::new(log.level.clone())) };
    (tracing_subscriber::registry().with(filter).with(layer), handle)
}

impl LogHandle {
    /// Sets the filter, such as `debug` or `info,sidebeat::link=debug`.
    ///
    /// # Errors
    /// Text for the caller; the old filter stays.
    pub fn set_level(&self, level: &str) -> Result<(), String> {
        let filter = parse_filter(level)?;
        self.handle.reload(targets(&filter)).map_err(|e| e.to_string())?;
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = level.to_owned();
        Ok(())
    }

    /// The filter in force.
    pub fn level(&self) -> String {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn targets(filter: &Filter) -> Targets {
    let level = |word: &str| word.parse::<LevelFilter>().unwrap_or(LevelFilter::INFO);
    let base = filter.level.map_or(LevelFilter::OFF, level);
    Targets::new().with_default(base).with_targets(filter.targets.iter().map(|(t, l)| (t.clone(), level(l))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn targets_follow_the_filter() {
        let targets = targets(&parse_filter("warn,sidebeat::link=debug,noisy=off").unwrap());
        assert!(targets.would_enable("sidebeat::link::driver", &Level::DEBUG));
        assert!(!targets.would_enable("sidebeat::proxy", &Level::INFO));
        assert!(targets.would_enable("sidebeat::proxy", &Level::WARN));
        assert!(!targets.would_enable("noisy", &Level::ERROR));
    }

    #[test]
    fn a_level_is_changed_and_a_bad_one_refused() {
        let (subscriber, handle) = subscriber(&Log { format: LogFormat::Json, level: "info".to_owned() });
        let _guard = tracing::subscriber::set_default(subscriber);
        assert!(!tracing::enabled!(target: "sidebeat::x", Level::DEBUG));
        handle.set_level("sidebeat=debug").unwrap();
        assert!(tracing::enabled!(target: "sidebeat::x", Level::DEBUG));
        assert!(!tracing::enabled!(target: "hyper", Level::ERROR));
        assert!(handle.set_level("loud").is_err());
        assert_eq!(handle.level(), "sidebeat=debug");
    }
}
