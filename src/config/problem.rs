//! Problems found in a configuration: place, key, what is wrong, what is allowed, a hint.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// At most this many problems are printed in full; a file of garbage must not flood a terminal.
const SHOWN: usize = 100;
/// Characters of a source line shown around a mark.
const LINE_CHARS: usize = 120;

/// Where a problem sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the file.
    Text {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// The line, made safe to print, at most about 120 characters of it.
        source: String,
        /// Characters of `source` before the mark.
        indent: usize,
        /// Length of the mark in characters, at least 1.
        length: usize,
    },
    /// In an environment variable, by its name.
    Env(String),
    /// The file as a whole.
    File,
}

/// One thing that is wrong, or worth a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file.
    pub file: Arc<str>,
    /// Where.
    pub place: Place,
    /// Dotted key, such as `outbound.inventory.cut_after`; empty for the file as a whole.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What is allowed instead.
    pub allowed: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A problem that does not stop the program.
pub type Warning = Problem;

impl Problem {
    pub(super) fn allowed(&mut self, text: impl Into<String>) -> &mut Self {
        self.allowed = Some(text.into());
        self
    }

    pub(super) fn hint(&mut self, text: impl Into<String>) -> &mut Self {
        self.hint = Some(text.into());
        self
    }

    fn order(&self) -> (usize, usize, usize) {
        match &self.place {
            Place::File => (0, 0, 0),
            Place::Text { line, column, .. } => (1, *line, *column),
            Place::Env(_) => (2, 0, 0),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Text { line, column, .. } => write!(f, "{}:{line}:{column}: ", self.file)?,
            Place::Env(name) => write!(f, "environment variable {name}: ")?,
            Place::File => write!(f, "{}: ", self.file)?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.what)?;
        if let Place::Text { line, source, indent, length, .. } = &self.place {
            let gutter = line.to_string().len();
            write!(f, "\n  {line} | {source}")?;
            write!(f, "\n  {:gutter$} | {:indent$}{}", "", "", "^".repeat(*length))?;
        }
        if let Some(allowed) = &self.allowed {
            write!(f, "\n  allowed: {allowed}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// Every problem of one configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub Vec<Problem>);

impl Errors {
    /// One problem of the file as a whole.
    pub(super) fn file(name: &str, what: impl Into<String>, hint: Option<&str>) -> Errors {
        let hint = hint.map(str::to_owned);
        let (file, what) = (Arc::from(name), what.into());
        Errors(vec![Problem { file, place: Place::File, key: String::new(), what, allowed: None, hint }])
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().take(SHOWN).enumerate() {
            let gap = if i == 0 { "" } else { "\n\n" };
            write!(f, "{gap}{problem}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

impl std::error::Error for Errors {}

/// Where something was read, before it is turned into line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum At {
    Span(Range<usize>),
    Env(String),
    File,
}

/// Collects problems and turns spans into lines and columns.
pub(super) struct Report<'t> {
    file: Arc<str>,
    text: &'t str,
    line_starts: Vec<usize>,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<'t> Report<'t> {
    pub(super) fn new(name: &str, text: &'t str) -> Report<'t> {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Report { file: Arc::from(name), text, line_starts, errors: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn error(&mut self, at: &At, key: impl Into<String>, what: impl Into<String>) -> &mut Problem {
        let problem = self.problem(at, key.into(), what.into());
        push(&mut self.errors, problem)
    }

    pub(super) fn warn(&mut self, at: &At, key: impl Into<String>, what: impl Into<String>) -> &mut Problem {
        let problem = self.problem(at, key.into(), what.into());
        push(&mut self.warnings, problem)
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Drops errors after the first `keep` that sit on a line of one of these: they follow from it.
    pub(super) fn drop_echoes(&mut self, keep: usize) {
        let line = |p: &Problem| match p.place {
            Place::Text { line, .. } => Some(line),
            Place::Env(_) | Place::File => None,
        };
        let broken: Vec<_> = self.errors.iter().take(keep).filter_map(line).collect();
        let mut i = 0;
        self.errors.retain(|p| {
            i += 1;
            i <= keep || line(p).is_none_or(|l| !broken.contains(&l))
        });
    }

    pub(super) fn finish<T>(mut self, value: T) -> Result<(T, Vec<Warning>), Errors> {
        self.errors.sort_by_key(Problem::order);
        self.warnings.sort_by_key(Problem::order);
        if self.errors.is_empty() { Ok((value, self.warnings)) } else { Err(Errors(self.errors)) }
    }

    /// Line of a place, for "first used in line 3".
    pub(super) fn describe(&self, at: &At) -> String {
        match at {
            At::Span(span) => format!("line {}", self.line_of(span.start).0 + 1),
            At::Env(name) => name.clone(),
            At::File => "the defaults".to_owned(),
        }
    }

    fn problem(&self, at: &At, key: String, what: String) -> Problem {
        let place = match at {
            At::Span(span) => self.place(span),
            At::Env(name) => Place::Env(printable(name)),
            At::File => Place::File,
        };
        let (key, what) = (printable(&key), printable(&what));
        Problem { file: self.file.clone(), place, key, what, allowed: None, hint: None }
    }

    /// Index and text of the line that holds a byte.
    fn line_of(&self, byte: usize) -> (usize, usize, &'t str) {
        let index = self.line_starts.partition_point(|&s| s <= byte).saturating_sub(1);
        let start = self.line_starts[index];
        let end = self.line_starts.get(index + 1).copied().unwrap_or(self.text.len());
        (index, start, self.text[start..end].trim_end_matches(['\n', '\r']))
    }

    fn place(&self, span: &Range<usize>) -> Place {
        // An error at the very end of a file is shown at the end of its last line with text.
        let begin = if span.start >= self.text.len() { self.text.trim_end().len() } else { span.start };
        let (index, start, line) = self.line_of(begin);
        let before = line.get(..begin - start).unwrap_or(line).chars().count();
        let marked = line.get(begin - start..span.end.saturating_sub(start).min(line.len()));
        let length = marked.map_or(0, |m| m.chars().count()).max(1);
        let skip = before.saturating_sub(LINE_CHARS / 2);
        let source: String = line.chars().skip(skip).take(LINE_CHARS).map(safe).collect();
        let indent = before - skip;
        let length = length.min(source.chars().count().saturating_sub(indent).max(1));
        Place::Text { line: index + 1, column: before + 1, source, indent, length }
    }
}

fn push(list: &mut Vec<Problem>, problem: Problem) -> &mut Problem {
    let at = list.len();
    list.push(problem);
    &mut list[at]
}

/// A file must not be able to send control sequences to a terminal through an error message.
fn safe(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

fn printable(text: &str) -> String {
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, span: Range<usize>) -> Place {
        Report::new("f", text).place(&span)
    }

    #[test]
    fn line_and_column_count_characters() {
        let text = "a = 1\r\n\tü = \"\u{1b}[2J\"\n";
        let start = text.find('"').unwrap();
        let Place::Text { line, column, source, indent, length } = place(text, start..text.len() - 1) else {
            panic!()
        };
        assert_eq!((line, column, indent, length), (2, 6, 5, 6));
        assert_eq!(source, " ü = \"\u{fffd}[2J\"");
    }

    #[test]
    fn end_of_file_empty_file_and_long_line() {
        assert!(matches!(place("", 0..0), Place::Text { line: 1, column: 1, length: 1, .. }));
        assert!(matches!(place("a =\n\n", 5..5), Place::Text { line: 1, column: 4, .. }));
        let long = format!("{}x{}", " ".repeat(1000), "y".repeat(1000));
        let Place::Text { column, source, indent, length, .. } = place(&long, 1000..2001) else { panic!() };
        assert_eq!((column, indent, source.len(), length), (1001, 60, 120, 60));
    }

    #[test]
    fn a_flood_is_cut() {
        let mut report = Report::new("f", "x");
        for _ in 0..250 {
            report.error(&At::Span(0..1), "x", "bad");
        }
        let text = report.finish(()).unwrap_err().to_string();
        assert!(text.ends_with("and 150 more"), "{text}");
    }
}
