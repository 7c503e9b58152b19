//! Probes of the local services (E5), on the control thread: the plan is pure, the questions are `evidence::ask`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::generation::Generation;
use crate::clock;
use crate::config::{Probe, ProbeKind};
use crate::evidence::ServiceStats;
use crate::evidence::ask::{self, Question, Statuses};
use crate::evidence::fuse::ProbeOpinion;
use crate::evidence::listener::reachable;
use crate::evidence::notes::ProbeNote;
use crate::evidence::prober::{Plan, PlanParams, Step};
use crate::metrics::ProbeResult;
use crate::proxy::inbound::Common;
use crate::stamp::Stamp;

/// Starts a probe per inbound that has one; it ends when the generation drains. Call it inside the control thread's
/// runtime.
pub(super) fn start(generation: &Generation) {
    let (p, shared) = (&generation.config.probe, &generation.shared);
    for inbound in &shared.inbounds {
        let name = &inbound.params.name;
        let wanted = p.inbounds.is_empty() || p.inbounds.contains(name);
        let Some(question) = question(p, name, &inbound.stats).filter(|_| wanted) else { continue };
        let (common, stats) = (shared.common.clone(), inbound.stats.clone());
        tokio::spawn(run(name.clone(), stats, question, p.clone(), common));
    }
}

fn question(p: &Probe, name: &str, stats: &ServiceStats) -> Option<Question> {
    let service = reachable(stats.service()).to_string();
    Some(match p.kind {
        ProbeKind::Off => return None,
        ProbeKind::Tcp => Question::Tcp,
        ProbeKind::Http => Question::Http { path: p.path.clone(), status: Statuses(p.status.clone()) },
        ProbeKind::Exec => Question::Exec {
            command: p.command.clone(),
            env: vec![
                ("SIDEBEAT_INBOUND".to_owned(), name.to_owned()),
                ("SIDEBEAT_SERVICE".to_owned(), service),
            ],
        },
    })
}

async fn run(name: String, stats: Arc<ServiceStats>, question: Question, p: Probe, common: Arc<Common>) {
    let (interval, healthy, unhealthy) = (p.interval, p.healthy, p.unhealthy);
    let mut plan = Plan::new(PlanParams { idle: p.idle, interval, healthy, unhealthy }, clock::now());
    let (service, mut was_failing) = (reachable(stats.service()), false);
    let metrics = common.metrics.probes(&name);
    stats.notes.probed(ProbeNote { what: question.what(), ..ProbeNote::default() });
    while !common.draining.load(Relaxed) {
        let begun = clock::now();
        match plan.poll(begun, stats.activity()) {
            Step::Wait(until) => tokio::time::sleep_until(clock::instant(until)).await,
            Step::Ask => {
                let answer = ask::ask(service, &question, p.timeout).await;
                let now = clock::now();
                let took = now.since(begun);
                metrics.ended(took, result(answer.is_ok(), took, p.timeout));
                if !plan.done(now, stats.activity(), answer.is_ok()) {
                    continue;
                }
                let said = match &answer {
                    Ok(said) | Err(said) => said.clone(),
                };
                let failing = plan.opinion() == ProbeOpinion::Failing;
                if failing != was_failing {
                    was_failing = failing;
                    tracing::info!(inbound = name, failing, said, "probe");
                }
                note(&stats, &question, &plan, (begun, now), said);
            }
        }
    }
}

/// A failure that took all the time there was is one for want of an answer.
fn result(ok: bool, took: Duration, timeout: Duration) -> ProbeResult {
    match ok {
        true => ProbeResult::Ok,
        false if took >= timeout => ProbeResult::Timeout,
        false => ProbeResult::Failed,
    }
}

/// Leaves the result where the watch sees it, and wakes the watch.
fn note(stats: &ServiceStats, question: &Question, plan: &Plan, (begun, at): (Stamp, Stamp), said: String) {
    let took_ms = at.millis_since(begun);
    let (opinion, streak) = (plan.opinion(), plan.streak());
    stats.notes.probed(ProbeNote { what: question.what(), opinion, streak, at, took_ms, said });
    stats.kick.notify_one();
}
