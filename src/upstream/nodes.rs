//! Pure: no IO, no clock. The nodes behind one address: a virtual IP or a balancer may lead each link to another pod, and
//! each pod has a service of its own (detection.md section 4, last lines).

use std::time::Duration;

use super::service::ServiceSide;
use crate::stamp::Stamp;
use crate::verdict::{Cause, State, Vouch};

/// Nodes of one endpoint that are told apart; links to more of them count for the last.
const NODES_MAX: usize = 64;

#[derive(Clone, Debug)]
struct Node {
    /// None until a link told.
    incarnation: Option<u64>,
    links: Vec<u64>,
    service: ServiceSide,
    /// Its links get no new work, and that was told.
    shunned: bool,
}

impl Node {
    fn new(incarnation: Option<u64>) -> Node {
        Node { incarnation, links: Vec::new(), service: ServiceSide::new(), shunned: false }
    }
}

/// The services of one endpoint; the best of them speaks for it.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// Never empty.
    list: Vec<Node>,
    /// Which of them is best: speaks for the endpoint.
    best: usize,
    /// Links to be told of, and whether they get new work.
    news: Vec<(u64, bool)>,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes::new()
    }
}

impl Nodes {
    /// Nothing known.
    pub fn new() -> Nodes {
        Nodes { list: vec![Node::new(None)], best: 0, news: Vec::new() }
    }

    // === links ===

    /// A link to that incarnation is up.
    pub fn link_up(&mut self, now: Stamp, link: u64, incarnation: u64) {
        self.list.iter_mut().for_each(|n| n.links.retain(|l| *l != link));
        let index = match self.list.iter().position(|n| n.incarnation == Some(incarnation)) {
            Some(known) => known,
            None if self.list[0].incarnation.is_none() => 0,
            None => {
                if self.list.len() < NODES_MAX {
                    self.list.push(Node::new(Some(incarnation)));
                }
                self.list.len() - 1
            }
        };
        let node = &mut self.list[index];
        node.incarnation.get_or_insert(incarnation);
        node.links.push(link);
        if node.shunned {
            self.news.push((link, false));
        }
        self.forget_unlinked(now);
    }

    /// A link ended.
    pub fn link_lost(&mut self, now: Stamp, link: u64) {
        self.list.iter_mut().for_each(|n| n.links.retain(|l| *l != link));
        self.forget_unlinked(now);
    }

    /// The node started anew: nothing of before counts, but for the link that told so.
    pub fn restart(&mut self, now: Stamp, link: u64, incarnation: u64) {
        *self = Nodes::new();
        self.link_up(now, link, incarnation);
    }

    /// Of a node that no link leads to any more nothing new will be heard, as long as others are linked.
    fn forget_unlinked(&mut self, now: Stamp) {
        if self.list.iter().any(|n| !n.links.is_empty()) {
            self.list.retain(|n| !n.links.is_empty());
        }
        self.choose(now);
    }

    /// The service behind that link.
    pub fn of(&mut self, link: u64) -> &mut ServiceSide {
        let index = self.list.iter().position(|n| n.links.contains(&link)).unwrap_or(self.list.len() - 1);
        &mut self.list[index].service
    }

    /// The next link whose place in the choice changed, and whether it gets new work from now on.
    pub fn poll(&mut self, now: Stamp) -> Option<(u64, bool)> {
        self.choose(now);
        let best = self.state();
        for node in &mut self.list {
            let shun = node.service.state() > best;
            if shun != node.shunned {
                node.shunned = shun;
                self.news.extend(node.links.iter().map(|l| (*l, !shun)));
            }
        }
        self.news.pop()
    }

    fn choose(&mut self, now: Stamp) {
        let rank = |n: &Node| (n.service.state(), -n.service.score(now));
        let order = |a: &(usize, (State, f64)), b: &(usize, (State, f64))| {
            (a.1.0.cmp(&b.1.0)).then(a.1.1.total_cmp(&b.1.1))
        };
        let ranked = self.list.iter().map(rank).enumerate();
        self.best = ranked.min_by(order).map_or(0, |(i, _)| i);
    }

    fn speaker(&self) -> &ServiceSide {
        &self.list[self.best].service
    }

    // === what the best says ===

    /// Time passed: an announced pause may be over.
    pub fn settle(&mut self, now: Stamp) {
        self.list.iter_mut().for_each(|n| n.service.settle(now));
        self.choose(now);
    }

    /// When [`Nodes::settle`] may change something by itself.
    pub fn due(&self, now: Stamp) -> Stamp {
        self.list.iter().map(|n| n.service.due(now)).min().unwrap_or(Stamp::NEVER)
    }

    /// Nodes that links lead to.
    pub fn linked(&self) -> usize {
        self.list.iter().filter(|n| !n.links.is_empty()).count()
    }

    /// Score at `now`.
    pub fn score(&self, now: Stamp) -> f64 {
        self.speaker().score(now)
    }

    /// State.
    pub fn state(&self) -> State {
        self.speaker().state()
    }

    /// Why.
    pub fn cause(&self) -> Cause {
        self.speaker().cause()
    }

    /// Latest vouch.
    pub fn last_vouch(&self) -> Vouch {
        self.speaker().last_vouch()
    }

    /// Whether its slowness is put down to an upstream of its own.
    pub fn starved(&self) -> bool {
        self.speaker().starved()
    }

    /// Whether that is why it is not FAILED.
    pub fn excused(&self) -> bool {
        self.speaker().excused()
    }

    /// Whether an announced pause runs.
    pub fn frozen(&self, now: Stamp) -> bool {
        self.speaker().frozen(now)
    }

    /// Since a peer last vouched for anything but a dead service.
    pub fn since_good(&self, now: Stamp) -> Option<Duration> {
        self.speaker().last_good().map(|at| now.since(at))
    }

    /// Whether the verdict is proved.
    pub fn by_proof(&self) -> bool {
        self.speaker().by_proof()
    }

    /// Whether its connections are dead for sure.
    pub fn gone(&self) -> bool {
        self.speaker().gone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Stamp {
        Stamp::from_millis(n)
    }

    fn says(n: &mut Nodes, link: u64, at: u64, vouch: Vouch) {
        n.of(link).vouch(ms(at), vouch, false, false);
        n.settle(ms(at));
    }

    fn news(n: &mut Nodes, at: u64) -> Vec<(u64, bool)> {
        let mut all: Vec<_> = std::iter::from_fn(|| n.poll(ms(at))).collect();
        all.sort_unstable();
        all
    }

    /// Links 1 and 2 to pod 70, link 3 to pod 80.
    fn two() -> Nodes {
        let mut n = Nodes::new();
        n.link_up(ms(50), 1, 70);
        n.link_up(ms(50), 2, 70);
        n.link_up(ms(50), 3, 80);
        assert_eq!((n.linked(), news(&mut n, 100)), (2, vec![]));
        n
    }

    #[test]
    fn a_dead_service_of_one_pod_takes_only_its_links_out() {
        let mut n = two();
        says(&mut n, 2, 100, Vouch::Gone);
        assert_eq!(n.state(), State::Active, "the other pod works");
        assert_eq!(news(&mut n, 100), [(1, false), (2, false)]);
        n.link_up(ms(50), 4, 70);
        assert_eq!(news(&mut n, 110), [(4, false)], "another link to the same pod is no better");
        says(&mut n, 3, 200, Vouch::Stopped);
        assert_eq!((n.state(), n.by_proof()), (State::Failed, true));
        assert_eq!(news(&mut n, 200), [(1, true), (2, true), (4, true)], "none is better than another");
    }

    #[test]
    fn a_pod_that_recovers_gets_work_again() {
        let mut n = two();
        says(&mut n, 1, 100, Vouch::Stalled);
        assert_eq!(news(&mut n, 100), [(1, false), (2, false)]);
        says(&mut n, 1, 120, Vouch::Working);
        assert_eq!(news(&mut n, 120), [(1, true), (2, true)]);
    }

    #[test]
    fn a_pod_without_links_is_forgotten_while_others_are_linked() {
        let mut n = two();
        says(&mut n, 3, 100, Vouch::Gone);
        n.link_lost(ms(300), 3);
        assert_eq!((n.linked(), n.state()), (1, State::Active));
        says(&mut n, 1, 200, Vouch::Gone);
        n.link_lost(ms(300), 1);
        n.link_lost(ms(300), 2);
        assert_eq!((n.linked(), n.cause()), (0, Cause::Crash), "the last word stands");
        n.link_up(ms(50), 9, 70);
        assert_eq!(n.state(), State::Failed);
        n.restart(ms(300), 10, 90);
        assert_eq!((n.linked(), n.state()), (1, State::Active));
    }

    #[test]
    fn endless_incarnations_cost_no_memory() {
        let mut n = Nodes::new();
        for i in 0..10_000 {
            n.link_up(ms(50), i, i);
        }
        assert!(n.list.len() <= NODES_MAX);
        says(&mut n, 9_999, 100, Vouch::Gone);
        assert_eq!(n.state(), State::Active);
    }
}
