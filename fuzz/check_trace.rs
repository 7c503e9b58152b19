//! What must hold for any bytes of a trace file. Used by the fuzz target and by the test that replays the corpus.

use sidebeat::replay::rows::plan;
use sidebeat::replay::score::Scoring;
use sidebeat::replay::survey::{Survey, Surveyor, cuts};
use sidebeat::replay::tracks::{Seen, Tracks};
use sidebeat::trace::format::{Builder, Damage, FormatError, Item, Record, Scanner};
use sidebeat::trace::reader::Step;

/// Everything that a file says.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Records, with their worker.
    pub(crate) records: Vec<(u16, Record)>,
    /// Damaged parts.
    pub(crate) damage: Vec<Damage>,
    /// Why it is no trace.
    pub(crate) error: Option<FormatError>,
    /// What the links in it did.
    pub(crate) survey: Survey,
}

/// Records of hostile files that are given to judges: a fuzzer needs no more.
const JUDGED: usize = 2000;

/// The first byte says how the rest arrives: the size of a piece (0: all at once). Panics if the reader or a judge breaks a
/// promise.
pub(crate) fn check(input: &[u8]) -> Outcome {
    let Some((size, bytes)) = input.split_first() else { return Outcome::default() };
    let whole = scan(bytes, bytes.len());
    let size = if *size == 0 { bytes.len() } else { usize::from(*size) };
    assert_eq!(scan(bytes, size), whole, "the same bytes, cut in another way, must say the same");
    let mut outcome = Outcome::default();
    match whole {
        Ok(items) => items.into_iter().for_each(|item| outcome.take(item)),
        Err(error) => outcome.error = Some(error),
    }
    outcome.round_trip();
    outcome.judge();
    outcome
}

fn scan(bytes: &[u8], size: usize) -> Result<Vec<Item>, FormatError> {
    let (mut scanner, mut items) = (Scanner::new(), Vec::new());
    for piece in bytes.chunks(size.max(1)) {
        scanner.feed(piece);
        while let Some(item) = scanner.next_item()? {
            items.push(item);
        }
    }
    scanner.end();
    while let Some(item) = scanner.next_item()? {
        items.push(item);
    }
    assert_eq!(scanner.next_item(), Ok(None), "the end is for ever");
    Ok(items)
}

impl Outcome {
    fn take(&mut self, item: Item) {
        match item {
            Item::Header(header) => {
                assert_eq!(
                    sidebeat::trace::format::Header::decode(&header.encode()).map(|h| h.map(|h| h.0)),
                    Ok(Some(header))
                );
            }
            Item::Block { worker, records } => self.records.extend(records.into_iter().map(|r| (worker, r))),
            Item::Damage(damage) => {
                assert!(damage.len > 0, "damage of no length");
                self.damage.push(damage);
            }
        }
    }

    /// What was read can be written, and is read the same.
    fn round_trip(&self) {
        for (worker, record) in &self.records {
            let mut block = Builder::new();
            block.push(record);
            let header = sidebeat::trace::format::Header {
                wall_ns: 0,
                base: record.at,
                incarnation: 0,
                sequence: 0,
                node: String::new(),
            };
            let bytes = [header.encode(), block.finish(*worker)].concat();
            let items = scan(&bytes, bytes.len()).expect("our own bytes");
            assert_eq!(items[1], Item::Block { worker: *worker, records: vec![record.clone()] });
        }
    }

    /// No record may make a judge panic or hang.
    fn judge(&mut self) {
        let mut surveyor = Surveyor::new();
        self.walk(&mut |seen| surveyor.see(seen));
        self.survey = surveyor.finish();
        let mut n = 0.0;
        let moments = cuts(&self.survey, 3, &mut || {
            n += 0.3;
            n
        });
        let rows = plan(&[], &[], &[]);
        let mut scoring = Scoring::new(&rows, &self.survey, &moments, 3);
        self.walk(&mut |seen| scoring.see(seen));
        assert_eq!(scoring.scores.len(), rows.len());
    }

    fn walk(&self, sink: &mut dyn FnMut(&Seen<'_>)) {
        let mut tracks = Tracks::new();
        for (worker, record) in self.records.iter().take(JUDGED) {
            tracks.step(&Step::Record { worker: *worker, record }, &mut |seen| sink(&seen));
        }
        tracks.finish(&mut |seen| sink(&seen));
    }
}
