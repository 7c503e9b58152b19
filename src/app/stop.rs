//! Signals and the order of the end: readiness off and GOAWAY first, then what is open, then the process.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::control::{App, LEAVING};
use super::loads::Loads;
use super::{RunError, serve_admin};
use crate::admin::Control;
use crate::clock;

/// How often old generations are ended and dead workers are looked for.
const ROUNDS: Duration = Duration::from_secs(1);
/// How often the drain looks whether anything is still open.
const LOOK: Duration = Duration::from_millis(50);
/// Nothing was open for this long: load balancers have seen readiness go, and what the last streams queued has left.
const QUIET: Duration = Duration::from_millis(250);

/// Serves the admin port until a signal ended the sidecar in order.
pub(super) async fn until_stopped(
    app: Arc<App>,
    admin: std::net::TcpListener,
    public: Option<std::net::TcpListener>,
) -> Result<(), RunError> {
    let (done, mut seen) = watch::channel(false);
    let serving = serve_admin(app.clone(), admin, public, async move {
        // The sender is dropped only at the end of the process: as good as "done".
        drop(seen.wait_for(|d| *d).await);
    });
    let signals = async {
        let result = signals(&app).await;
        done.send_replace(true);
        result
    };
    let ((), result) = tokio::join!(serving, signals);
    result
}

struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
    usr1: Signal,
}

async fn signals(app: &Arc<App>) -> Result<(), RunError> {
    let mut s = Signals {
        term: signal(SignalKind::terminate())?,
        int: signal(SignalKind::interrupt())?,
        hup: signal(SignalKind::hangup())?,
        usr1: signal(SignalKind::user_defined1())?,
    };
    let mut loads = Loads::default();
    // Not a sleep made anew after each signal: signals that come often must not put this off for ever.
    let mut rounds = tokio::time::interval(ROUNDS);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = s.int.recv() => {
                tracing::info!("SIGINT: stops now");
                return Ok(());
            }
            _ = s.term.recv() => return drain(app, &mut s, "SIGTERM").await,
            () = app.drain_asked.notified() => return drain(app, &mut s, "POST /drain").await,
            _ = s.hup.recv() => loads.ask(app),
            loaded = loads.done() => {
                app.reload(loaded);
                loads.next(app);
            }
            _ = s.usr1.recv() => log_state(app),
            _ = rounds.tick() => {
                app.sweep();
                if !app.live() {
                    return Err(RunError::Worker);
                }
            }
        }
    }
}

async fn drain(app: &Arc<App>, s: &mut Signals, why: &str) -> Result<(), RunError> {
    app.begin_drain();
    let patience = app.current().config.drain_deadline;
    let deadline = clock::now() + patience;
    let mut last_open = clock::now();
    tracing::info!(why, open = app.open_connections(), deadline_s = patience.as_secs_f64(), "draining");
    loop {
        tokio::select! {
            _ = s.int.recv() => break tracing::info!("SIGINT: stops now"),
            _ = s.term.recv() => break tracing::info!("second SIGTERM: stops now"),
            // A drain may last an hour: whoever asks in that time is answered.
            _ = s.hup.recv() => app.reload(Err(LEAVING.to_owned())),
            _ = s.usr1.recv() => log_state(app),
            () = tokio::time::sleep(LOOK) => {}
        }
        let now = clock::now();
        if app.open_connections() > 0 {
            last_open = now;
        } else if now.since(last_open) >= QUIET {
            break tracing::info!("drained");
        }
        if now >= deadline {
            break tracing::warn!(open = app.open_connections(), "drain deadline: what is open is cut");
        }
    }
    Ok(())
}

fn log_state(app: &App) {
    match serde_json::to_string(&app.status()) {
        Ok(json) => tracing::info!(status = json, "state"),
        Err(e) => tracing::warn!(error = %e, "state"),
    }
}
