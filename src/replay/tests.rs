use std::sync::Arc;
use std::time::Duration;

use super::player::Player;
use super::report::{Report, Source};
use super::rows::{Row, plan};
use super::score::Scoring;
use super::survey::{self, Life, Survey, Surveyor};
use super::tracks::{Seen, Tracks};
use super::watch::{self, Watching};
use crate::detector::{End, Facts, Input, LinkJudge, Output, Params, Said, Tap};
use crate::sim::rng::Rng;
use crate::stamp::Stamp;
use crate::trace::format::{Event, Header, LinkInfo, Record};
use crate::trace::reader::Step;
use crate::trace::settings;
use crate::verdict::State;

const RTT: Duration = Duration::from_micros(300);

fn ms(n: u64) -> Stamp {
    Stamp::from_millis(n)
}

fn dur(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn info(params: &Params, endpoint: &str) -> Arc<LinkInfo> {
    let (law, settings) = settings::describe(params);
    Arc::new(LinkInfo {
        worker: 0,
        upstream: "u".to_owned(),
        endpoint: endpoint.to_owned(),
        node: "n".to_owned(),
        law: law.to_owned(),
        settings,
        first_promise: params.first_promise,
    })
}

#[derive(Debug, Default)]
struct Log(std::rc::Rc<std::cell::RefCell<Vec<Input>>>);

impl Tap for Log {
    fn note(&mut self, input: &Input) {
        self.0.borrow_mut().push(*input);
    }
}

/// A live link in virtual time, recorded: its peer beats each 16 ms, promising 20, and answers unless it is silent.
struct Live {
    judge: LinkJudge,
    log: std::rc::Rc<std::cell::RefCell<Vec<Input>>>,
    now: Stamp,
    params: Params,
    begin: Stamp,
    /// The loop wakes up so late.
    late: Duration,
}

impl Live {
    fn new(params: Params) -> Live {
        let log = Log::default();
        let inputs = log.0.clone();
        let mut judge = LinkJudge::new(&params, ms(1000));
        judge.tap(Box::new(log));
        judge.rtt_sample_at(ms(1000), RTT);
        Live { judge, log: inputs, now: ms(1000), params, begin: ms(1000), late: Duration::ZERO }
    }

    fn poll(&mut self, answers: bool) {
        let mut asked = false;
        for _ in 0..16 {
            let facts = Facts::default();
            let Some(output) = self.judge.poll(self.now, &mut || facts) else { break };
            if output == Output::Challenge {
                self.judge.challenge_sent(self.now);
                asked = true;
            }
        }
        if asked && answers {
            self.now = self.now + RTT;
            self.judge.heard(self.now);
            self.judge.rtt_sample_at(self.now, RTT);
            self.judge.challenge_answered(self.now);
            if self.judge.state() != State::Active {
                self.poll(answers);
            }
        }
    }

    fn until(&mut self, end: Stamp, answers: bool) {
        while self.judge.next_due().0 < end {
            self.now = (self.judge.next_due().0 + self.late).max(self.now);
            self.poll(answers);
        }
        self.now = self.now.max(end);
    }

    fn beats(&mut self, n: u64) {
        for i in 0..n {
            let next = self.now + dur(16) + Duration::from_micros(i * 37 % 900);
            self.until(next, true);
            self.judge.we_promised(self.now, dur(1000));
            self.judge.heard(self.now);
            self.judge.rtt_sample_at(self.now, RTT + Duration::from_micros(i % 50));
            self.judge.peer_view(self.now, dur(3));
            self.judge.promised(self.now, dur(20));
            if self.judge.state() != State::Active {
                self.poll(true);
            }
        }
    }

    fn silence(&mut self, d: Duration) {
        let end = self.now + d;
        self.until(end, false);
    }

    fn records(&self, link: u32, endpoint: &str) -> Vec<Record> {
        let begin = Event::Begin(info(&self.params, endpoint));
        let inputs = self.log.borrow();
        let told = inputs.iter().map(|i| Record { link, at: i.at(), event: Event::Input(*i) });
        std::iter::once(Record { link, at: self.begin, event: begin }).chain(told).collect()
    }
}

fn header() -> Header {
    Header { wall_ns: 0, base: ms(0), incarnation: 1, sequence: 0, node: "n".to_owned() }
}

fn steps(records: &[Record], sink: &mut dyn FnMut(&Seen<'_>)) -> Tracks {
    let mut tracks = Tracks::new();
    tracks.step(&Step::Run(&header()), &mut |seen| sink(&seen));
    for record in records {
        tracks.step(&Step::Record { worker: 0, record }, &mut |seen| sink(&seen));
    }
    tracks.finish(&mut |seen| sink(&seen));
    tracks
}

fn surveyed(records: &[Record]) -> Survey {
    let mut surveyor = Surveyor::new();
    steps(records, &mut |seen| surveyor.see(seen));
    surveyor.finish()
}

fn scored(records: &[Record], rows: &[Row], cuts: usize) -> Vec<super::score::Score> {
    let survey = surveyed(records);
    let mut rng = Rng::new(7);
    let moments = survey::cuts(&survey, cuts, &mut || rng.unit());
    let mut scoring = Scoring::new(rows, &survey, &moments, cuts);
    steps(records, &mut |seen| scoring.see(seen));
    scoring.scores
}

fn only(law: &str) -> Vec<Row> {
    plan(&[law.to_owned()], &[], &[])
}

/// A link with everything in it: calm, a mistake, its own stall, backpressure, an outage, and the end.
fn eventful(params: Params) -> Live {
    let mut live = Live::new(params);
    live.beats(100);
    live.silence(dur(60));
    live.beats(50);
    live.judge.backpressure(live.now, true, dur(20));
    live.beats(20);
    let stall = live.now;
    live.now = live.now + dur(70);
    live.judge.own_stall(stall, live.now);
    live.beats(50);
    live.judge.peer_stalled(live.now);
    live.silence(dur(2000));
    live.beats(60);
    live.judge.tell_tap(Input::Ended { at: live.now, how: End::Fin });
    live
}

#[test]
fn the_recorded_judge_says_the_same_again() {
    for name in crate::detector::catalog::NAMES {
        for late in [0, 700] {
            let params = crate::detector::catalog::by_name(name).unwrap();
            let mut live = Live::new(params);
            live.late = Duration::from_micros(late);
            live.beats(100);
            live.silence(dur(300));
            live.beats(50);
            live.silence(dur(4000));
            live.beats(50);
            let r = surveyed(&live.records(1, "e")).recorded;
            assert!(r.repeatable >= 2, "{name}: {r:?}");
            assert_eq!((r.reproduced, r.first_difference), (r.repeatable, None), "{name}");
        }
    }
    let r = surveyed(&eventful(Params::default()).records(1, "e")).recorded;
    assert_eq!((r.reproduced, &r.first_difference), (r.repeatable, &None));
    assert!((r.failed, r.mistakes, r.outages) == (2, 1, 1) && r.suspects >= 2, "{r:?}");
}

/// A replay that is not told what the live judge inherited and how late both ends were would be quicker than it was.
#[test]
fn inherited_lateness_and_noise_are_told_again() {
    for told in [true, false] {
        let mut live = Live::new(Params::default());
        if told {
            live.judge.inherit(ms(1000), dur(30));
        }
        live.beats(50);
        live.silence(dur(35));
        live.beats(50);
        if told {
            live.judge.set_noise(live.now, dur(90));
        }
        live.silence(dur(70));
        live.beats(50);
        let records = live.records(1, "e");
        let r = surveyed(&records).recorded;
        assert_eq!((r.reproduced, r.first_difference), (r.repeatable, None), "{told}");
        assert_eq!(r.failed, if told { 0 } else { 2 });
        let deaf =
            |r: &&Record| !matches!(&r.event, Event::Input(Input::Inherited { .. } | Input::Noise { .. }));
        let forgetful: Vec<Record> = records.iter().filter(deaf).cloned().collect();
        let r = surveyed(&forgetful).recorded;
        assert_eq!(r.first_difference.is_some(), told);
    }
}

#[test]
fn another_law_is_told_apart() {
    let live = eventful(Params::default());
    let mut records = live.records(1, "e");
    let wrong = Params { tau_min: dur(40), ..Params::default() };
    records[0].event = Event::Begin(info(&wrong, "e"));
    let r = surveyed(&records).recorded;
    assert!(r.reproduced < r.repeatable && r.first_difference.is_some(), "{r:?}");
}

#[test]
fn lives_end_at_real_failures_only() {
    let live = eventful(Params::default());
    let survey = surveyed(&live.records(1, "e"));
    let [stretch] = &survey.stretches[..] else { panic!("{survey:?}") };
    let [first, second] = stretch.lives[..] else { panic!("{:?}", stretch.lives) };
    assert!(second.from.since(first.to) >= dur(1990), "the outage is no life: {first:?} {second:?}");
    assert!(first.to.since(first.from) > dur(3000), "the mistake ends none");
    assert_eq!(survey.failures, 2, "the outage and the FIN");
    assert!(survey.lived() > dur(4000));
}

#[test]
fn the_recorded_law_makes_the_recorded_mistakes_again() {
    let records = eventful(Params::default()).records(1, "e");
    let rows = plan(&[], &[], &[]);
    let scores = scored(&records, &rows, 200);
    let of = |law: &str| &scores[rows.iter().position(|r| r.law == law).unwrap()];
    assert_eq!((of("recorded").mistakes, of("promise").mistakes), (1, 1));
    assert!(
        of("recorded").wrong > Duration::ZERO && of("recorded").wrong < dur(80),
        "{:?}",
        of("recorded").wrong
    );
    assert_eq!(of("timeout").mistakes, 0, "3 s is longer than anything in it but the outage");
    for (row, score) in rows.iter().zip(&scores) {
        let t_d = score.detections();
        assert_eq!(score.undetected(), 0, "{}", row.law);
        assert!(t_d.len() > 150, "{}: {} cuts", row.law, t_d.len());
    }
    let p50 = |law: &str| super::score::quantile(&of(law).detections(), 0.5).unwrap();
    // After a mistake of 60 ms the law waits for 1.2 x 39 ms past the deadline.
    assert!((20.0..90.0).contains(&p50("promise")), "{}", p50("promise"));
    assert!((2980.0..3001.0).contains(&p50("timeout")), "{}", p50("timeout"));
}

/// FAILED was right in the outage, and not a moment longer than the outage: P_A and the recovery time say so.
#[test]
fn a_law_is_wrong_while_it_heals() {
    let mut live = Live::new(Params::default());
    live.beats(100);
    live.silence(dur(2000));
    live.beats(60);
    let records = live.records(1, "e");
    assert_eq!(surveyed(&records).stretches[0].lives.len(), 2);
    let rows = plan(&["promise".to_owned(), "timeout".to_owned()], &[], &[]);
    let scores = scored(&records, &rows, 10);
    assert_eq!((scores[0].mistakes, scores[0].recoveries.len()), (0, 1));
    let healing = scores[0].recoveries[0];
    assert!(healing > Duration::ZERO && healing < dur(200), "{healing:?}");
    assert_eq!((scores[0].wrong_time(), scores[0].recovery()), (healing, Some(healing)));
    assert_eq!(
        scores[1].recovery(),
        None,
        "3 s are longer than the outage: there was nothing to recover from"
    );
    let report = Report {
        source: Source::default(),
        survey: surveyed(&records),
        rows: rows.into_iter().zip(scores).collect(),
        cuts: 10,
    };
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let [row, other] = [&json["rows"][0], &json["rows"][1]];
    let p_a = 1.0 - healing.as_secs_f64() / report.survey.lived().as_secs_f64();
    assert!((row["p_a"].as_f64().unwrap() - p_a).abs() < 1e-9, "{row}");
    assert_eq!((&row["recoveries"], &other["recovery_ms"]["mean"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(other["p_a"], 1.0);
    let csv = report.csv();
    let columns: Vec<usize> = csv.lines().map(|l| l.split(',').count()).collect();
    assert!(columns.len() == 3 && columns.iter().all(|n| *n == columns[0]), "{csv}");
    assert!(report.text().contains(" - / -"), "{}", report.text());
}

#[test]
fn a_cut_is_detected_as_a_live_silence_is() {
    let mut live = Live::new(Params::default());
    live.beats(200);
    let records = live.records(1, "e");
    let scores = scored(&records, &only("promise"), 500);
    let t_d = scores[0].detections();
    // D is 21 ms after the last beat, FAILED 1.61 x 6 ms past it; the cut falls anywhere within the 16 ms before.
    let worst = 21.0 + 9.7;
    assert!(t_d.iter().all(|t| (worst - 17.0..worst + 0.1).contains(t)), "{t_d:?}");
    assert!(t_d.len() == 500 && t_d[499] - t_d[0] > 14.0, "spread over the gap");
    assert_eq!((scores[0].mistakes, scores[0].suspects), (0, 0));
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let records = eventful(Params::default()).records(1, "e");
    let rows = plan(&[], &[], &[]);
    assert_eq!(scored(&records, &rows, 100), scored(&records, &rows, 100));
}

#[test]
fn a_hole_is_no_silence() {
    let mut live = Live::new(Params::default());
    live.beats(100);
    let (before, hole_from) = (live.log.borrow().len(), live.now);
    live.beats(200);
    let after = live.log.borrow().len();
    live.beats(100);
    let mut records = live.records(1, "e");
    let gap = Record { link: 0, at: records[after + 1].at, event: Event::Gap(9) };
    let known = Record { link: 1, at: gap.at, event: Event::Known(info(&Params::default(), "e")) };
    records.splice(before + 1..after + 1, [gap, known]);
    let survey = surveyed(&records);
    let lives: Vec<Life> = survey.stretches.iter().flat_map(|s| s.lives.clone()).collect();
    assert_eq!(lives.len(), 2, "{lives:?}");
    assert!(lives[0].to <= hole_from && lives[1].from >= gap_end(&records), "{lives:?}");
    for (row, score) in plan(&[], &[], &[]).iter().zip(scored(&records, &plan(&[], &[], &[]), 50)) {
        assert_eq!((score.mistakes, score.suspects), (0, 0), "{}", row.law);
    }
    assert_eq!(survey.recorded.repeatable, 0);
}

fn gap_end(records: &[Record]) -> Stamp {
    records.iter().find(|r| matches!(r.event, Event::Gap(_))).map(|r| r.at).unwrap()
}

#[test]
fn links_to_one_endpoint_speak_for_each_other() {
    let mut busy = Live::new(Params::default());
    busy.beats(300);
    let mut off_duty = Live::new(Params::default());
    off_duty.judge.heard(off_duty.now);
    off_duty.judge.promised(off_duty.now, dur(10_000));
    for _ in 0..4 {
        off_duty.now = off_duty.now + dur(1300);
        off_duty.judge.heard(off_duty.now);
        off_duty.judge.promised(off_duty.now, dur(10_000));
    }
    let mut records = [busy.records(1, "e"), off_duty.records(2, "e")].concat();
    records.sort_by_key(|r| r.at);
    let t_d = scored(&records, &only("promise"), 200)[0].detections();
    assert!(t_d.iter().filter(|t| **t < 40.0).count() > 150, "{t_d:?}");
    // Apart, the idle link alone is slow.
    let mut apart = [busy.records(1, "e"), off_duty.records(2, "f")].concat();
    apart.sort_by_key(|r| r.at);
    let t_d = scored(&apart, &only("promise"), 200)[0].detections();
    assert!(t_d.iter().filter(|t| **t > 5000.0).count() > 50, "{t_d:?}");
}

/// A judge that the recording did not know is answered where the peer kept its word, and only there.
#[test]
fn questions_of_a_replayed_judge_are_answered_in_kept_time_only() {
    let mut live = Live::new(Params { kind: crate::detector::Kind::Timeout, ..Params::default() });
    live.beats(50);
    live.silence(dur(60));
    let back = live.now;
    live.beats(50);
    let records = live.records(1, "e");
    assert!(!records.iter().any(|r| matches!(r.event, Event::Input(Input::ChallengeSent { .. }))));
    let mut player = Player::new(&Params::default(), ms(1000));
    let mut said = Vec::new();
    for r in &records {
        if let Event::Input(input) = &r.event {
            player.take(input, &mut |at, s| said.push((at, s)));
        }
    }
    let failed = said.iter().find(|(_, s)| *s == Said::Failed).expect("60 ms are too long for it");
    assert!(failed.0 < back, "nobody answered in the silence");
    let healed = said.iter().find(|(_, s)| matches!(s, Said::Active { .. })).expect("it heals");
    assert!(
        healed.0.since(back) < dur(45),
        "rounds of questions, not beats alone, heal: {:?}",
        healed.0.since(back)
    );
}

#[test]
fn a_jump_of_a_day_is_a_hole() {
    let mut live = Live::new(Params::default());
    live.beats(20);
    let mut records = live.records(1, "e");
    let at = live.now + Duration::from_secs(25 * 3600);
    records.push(Record { link: 1, at, event: Event::Input(Input::Heard { at }) });
    let survey = surveyed(&records);
    assert_eq!(survey.stretches.len(), 2);
}

#[test]
fn records_of_unknown_links_are_counted() {
    let at = ms(5);
    let stray = [Record { link: 9, at, event: Event::Input(Input::Heard { at }) }];
    let mut seen = 0;
    let tracks = steps(&stray, &mut |_| seen += 1);
    assert_eq!((tracks.unknown, seen), (1, 0));
}

#[test]
fn an_empty_trace_has_empty_rows() {
    let rows = plan(&[], &[], &[]);
    let scores = scored(&[], &rows, 10);
    assert!(scores.iter().all(|s| s.mistakes == 0 && s.detections().is_empty() && s.undetected() == 0));
}

#[test]
fn the_scores_of_the_longest_silence_fall_as_they_fell() {
    let mut live = eventful(Params::default());
    live.silence(dur(3000));
    let records = live.records(1, "e");
    let silence = watch::longest(&surveyed(&records)).unwrap();
    assert!(silence.length >= dur(1900), "the outage of two seconds: {silence:?}");
    let rows = [only("promise"), only("timeout")].concat();
    let mut watching = Watching::new(&rows, silence);
    steps(&records, &mut |seen| watching.see(seen));
    let plot = watching.plot();
    assert!(plot.title.contains("u e") && plot.title.contains(" ms"), "{}", plot.title);
    let [promise, timeout] = &plot.series[..] else { panic!("{} series", plot.series.len()) };
    assert!(promise.points.windows(2).all(|w| w[0].0 <= w[1].0), "in order of time");
    let before = promise.points.iter().filter(|p| p.0 < 0.0);
    assert!(before.clone().count() > 2 && before.clone().all(|p| p.1 == 1.0));
    assert_eq!(promise.points.last().map(|p| p.1 < 0.2), Some(true), "FAILED a while after");
    assert!(timeout.points.iter().all(|p| p.1 >= 0.2), "three seconds are not over");
}
