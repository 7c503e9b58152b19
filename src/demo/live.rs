//! The live view: the picture five times a second, faults from the keyboard.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use rustix::termios::tcgetwinsize;

use super::conduct::Stage;
use super::keys::{self, Action, Screen};
use super::view::{Model, Row, render};
use super::{config, events};
use crate::clock;

const REFRESH: Duration = Duration::from_millis(200);
const EVENTS: usize = 10;
const MESSAGES: usize = 5;

type Messages = Rc<RefCell<Vec<String>>>;

/// Shows the scene until a key ends it.
pub async fn run(stage: Rc<Stage>, notes: Vec<String>) -> io::Result<()> {
    let mut keys = keys::listen()?;
    let _screen = Screen::open()?;
    let messages: Messages = Rc::new(RefCell::new(notes));
    let mut model = Model {
        rows: stage.scene.pods.iter().map(|p| Row { name: p.name.clone(), ..Row::default() }).collect(),
        begin: stage.begin,
        colour: std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        ..Model::default()
    };
    let mut meter = Meter::default();
    let mut tick = tokio::time::interval(REFRESH);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            key = keys.recv() => match key {
                None | Some(Action::Quit) => return Ok(()),
                Some(Action::Target(i)) => model.target = i.min(stage.scene.pods.len() - 1),
                Some(Action::Fault(kind)) => start_fault(&stage, kind, model.target, &messages),
            },
            _ = tick.tick() => {}
        }
        update(&stage, &mut model, &mut meter, &messages).await;
        let mut out = io::stdout().lock();
        out.write_all(render(&model).as_bytes())?;
        out.flush()?;
    }
}

fn start_fault(stage: &Rc<Stage>, kind: super::faults::Kind, target: usize, messages: &Messages) {
    let name = stage.scene.pods[target].name.clone();
    if stage.busy.borrow().contains(&target) {
        return say(messages, format!("{name} is still under a fault"));
    }
    say(messages, format!("{kind} {name} ..."));
    let (stage, messages) = (stage.clone(), messages.clone());
    tokio::task::spawn_local(async move {
        let fault = stage.fault(kind, target).await;
        say(&messages, fault.line());
    });
}

fn say(messages: &Messages, line: String) {
    let mut all = messages.borrow_mut();
    all.push(line);
    let extra = all.len().saturating_sub(MESSAGES);
    all.drain(..extra);
}

/// Rates since the last picture, smoothed over about a second.
#[derive(Debug, Default)]
struct Meter {
    last: Option<(crate::stamp::Stamp, Vec<u64>)>,
    rates: Vec<f64>,
}

impl Meter {
    fn update(&mut self, now: crate::stamp::Stamp, served: &[u64]) {
        self.rates.resize(served.len(), 0.0);
        if let Some((then, before)) = &self.last {
            let seconds = now.since(*then).as_secs_f64().max(1e-3);
            let keep = (-seconds).exp();
            for ((rate, new), old) in self.rates.iter_mut().zip(served).zip(before) {
                *rate = *rate * keep + (new - old) as f64 / seconds * (1.0 - keep);
            }
        }
        self.last = Some((now, served.to_vec()));
    }
}

async fn update(stage: &Stage, model: &mut Model, meter: &mut Meter, messages: &Messages) {
    // A stopped observer must not stop the picture.
    let asked =
        tokio::time::timeout(Duration::from_millis(100), events::status(stage.scene.admin, config::UPSTREAM));
    let rows = asked.await.ok().and_then(Result::ok).unwrap_or_default();
    {
        let mut ledger = stage.load.ledger();
        meter.update(clock::now(), &ledger.served);
        model.counts = (ledger.total, ledger.failed, ledger.retried);
        model.latency = ledger.take_recent();
    }
    model.rate = meter.rates.iter().sum();
    let busy = stage.busy.borrow();
    for (i, row) in model.rows.iter_mut().enumerate() {
        let address = stage.scene.pods[i].endpoint.to_string();
        row.status = rows.iter().find(|r| r.address == address).cloned();
        row.served = meter.rates.get(i).copied().unwrap_or_default();
        row.fault = busy.contains(&i);
    }
    model.events = stage.log.tail(EVENTS);
    model.messages = messages.borrow().clone();
    model.width = tcgetwinsize(io::stdout()).map_or(80, |w| usize::from(w.ws_col)).max(20);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;

    #[test]
    fn rates_settle_on_the_true_rate() {
        let mut m = Meter::default();
        for n in 0..50_u64 {
            m.update(Stamp::from_millis(n * 200), &[n * 20, 0]);
        }
        assert!((m.rates[0] - 100.0).abs() < 1.0, "{:?}", m.rates);
        assert_eq!(m.rates[1], 0.0);
    }
}
