//! The configuration is read again on a thread of its own: a disk that hangs stops no signal, no probe and no admin port.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::control::App;
use crate::config::Config;

type Loaded = Result<Config, String>;

/// At most one load at a time; those asked for meanwhile are one more, which sees the file as it is then.
#[derive(Default)]
pub(super) struct Loads {
    running: Option<oneshot::Receiver<Loaded>>,
    again: bool,
}

impl Loads {
    /// SIGHUP.
    pub(super) fn ask(&mut self, app: &Arc<App>) {
        if self.running.is_some() {
            self.again = true;
            return tracing::info!("SIGHUP: the configuration is being read; it will be read once more");
        }
        let app = app.clone();
        self.begin(move || app.load());
    }

    /// One is done: begins the one that was asked for meanwhile.
    pub(super) fn next(&mut self, app: &Arc<App>) {
        if std::mem::take(&mut self.again) {
            self.ask(app);
        }
    }

    fn begin(&mut self, load: impl FnOnce() -> Loaded + Send + 'static) {
        let (tell, told) = oneshot::channel();
        // Nobody may wait any more: the program ends.
        let job = move || drop(tell.send(load()));
        // Without a thread its end of the channel is dropped, and that is told like any other failure.
        drop(std::thread::Builder::new().name("sb-config".to_owned()).spawn(job));
        self.running = Some(told);
    }

    /// What came of it; for ever, if nothing was asked for.
    pub(super) async fn done(&mut self) -> Loaded {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let loaded = running.await;
        self.running = None;
        loaded.unwrap_or_else(|_| Err("the thread that reads the configuration could not work".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_load_that_hangs_keeps_nobody_waiting() {
        let mut loads = Loads::default();
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        loads.begin(move || {
            let _ = hangs.recv();
            Err("read at last".to_owned())
        });
        for _ in 0..3 {
            // What else the control thread does.
            let other = tokio::select! {
                biased;
                _ = loads.done() => false,
                () = tokio::task::yield_now() => true,
            };
            assert!(other);
        }
        drop(release);
        assert_eq!(loads.done().await, Err("read at last".to_owned()));
        loads.begin(|| panic!("a defect"));
        assert!(loads.done().await.is_err());
    }
}
