//! Reads a parsed file and the environment by the [`super::schema`]: every key checked alone, every problem kept.
//!
//! Pure: no IO, no clock.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::address::{read_address, read_network};
use super::env::{self, Override};
use super::kind::{Choice, Kind, MAX_SHADOWS, Role};
use super::problem::{At, Report};
use super::raw::{Document, Endpoint, Entry, Table};
use super::schema::{self, Default, ENDPOINT, Key, PLANNED, SECTIONS, Section};
use super::value::{Fault, Value, read_shadow, read_string, wrong_type};
use super::words::nearest;

type Item<'t> = Spanned<DeValue<'t>>;

/// Reads everything. `complete` is false after syntax errors: what seems missing may be in the broken part.
pub(super) fn read(
    root: &DeTable<'_>,
    vars: Vec<Override>,
    complete: bool,
    report: &mut Report<'_>,
) -> Document {
    let mut reader = Reader { report, vars, complete };
    reader.unknown_keys(root, "", "", &At::Span);
    let mut document = Document { tables: BTreeMap::new(), lists: BTreeMap::new() };
    for section in SECTIONS {
        let found = find(root, section.path);
        if section.list {
            document.lists.insert(section.path, reader.list(section, found));
        } else {
            let table = found.and_then(|item| reader.as_table(section, item).map(|t| (t, item.span())));
            document.tables.insert(section.path, reader.section(section, table));
        }
    }
    reader.unused_vars(&document);
    document
}

/// The item at a dotted path; None also where a parent is no table, which its own section reports.
fn find<'a, 't>(root: &'a DeTable<'t>, path: &str) -> Option<&'a Item<'t>> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(f, r)| (f, Some(r)));
    let item = root.iter().find(|(k, _)| k.get_ref() == first)?.1;
    match rest {
        None => Some(item),
        Some(rest) => find(item.get_ref().as_table()?, rest),
    }
}

// === impl Reader ===

struct Reader<'r, 't> {
    report: &'r mut Report<'t>,
    vars: Vec<Override>,
    complete: bool,
}

type Locate<'a> = &'a dyn Fn(std::ops::Range<usize>) -> At;

impl Reader<'_, '_> {
    fn as_table<'a, 't>(&mut self, section: &Section, item: &'a Item<'t>) -> Option<&'a DeTable<'t>> {
        let table = item.get_ref().as_table();
        if table.is_none() {
            let hint =
                if item.get_ref().is_array() { "single brackets: there is one such table" } else { "" };
            let what = format!("must be a table, written {}", section.header());
            let problem = self.report.error(&At::Span(item.span()), section.path, what);
            problem.hint = (!hint.is_empty()).then(|| hint.to_owned());
        }
        table
    }

    fn section(
        &mut self,
        section: &'static Section,
        found: Option<(&DeTable<'_>, std::ops::Range<usize>)>,
    ) -> Table {
        let at = found.as_ref().map_or(At::File, |(_, span)| At::Span(span.clone()));
        self.table(section, section.path.to_owned(), at, found.map(|(t, _)| t), &At::Span)
    }

    fn list(&mut self, section: &'static Section, found: Option<&Item<'_>>) -> Vec<Table> {
        let Some(item) = found else { return Vec::new() };
        let Some(items) = item.get_ref().as_array() else {
            let what = format!("must be a list of tables, each written {}", section.header());
            let problem = self.report.error(&At::Span(item.span()), section.path, what);
            problem.hint(format!("double brackets: {}", section.header()));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let at = At::Span(item.span());
            let Some(table) = item.get_ref().as_table() else {
                let what = format!("must be a table, written {}", section.header());
                self.report.error(&at, format!("{}[{index}]", section.path), what);
                continue;
            };
            let name = find(table, "name").and_then(|n| n.get_ref().as_str());
            let name = name.filter(|n| Kind::Name.read(&DeValue::String((*n).into())).is_ok());
            let label = match name {
                Some(name) => format!("{}.{name}", section.path),
                None => format!("{}[{index}]", section.path),
            };
            tables.push(self.table(section, label, at, Some(table), &At::Span));
        }
        tables
    }

    /// Reads one table: what is written, then the environment, then the defaults.
    fn table(
        &mut self,
        section: &'static Section,
        label: String,
        at: At,
        table: Option<&DeTable<'_>>,
        locate: Locate<'_>,
    ) -> Table {
        if let Some(table) = table {
            self.unknown_keys(table, section.path, &label, locate);
        }
        let mut entries = BTreeMap::new();
        for key in section.keys {
            let full = format!("{label}.{}", key.name);
            let written = table.and_then(|t| find(t, key.name));
            let mut entry = written.map(|item| self.entry(key, &full, item, locate));
            if let Some(over) = self.overridden(section, &label, key, &full) {
                let broken = over.broken || entry.is_some_and(|e| e.broken);
                entry = Some(Entry { broken, ..over });
            }
            let entry = entry.unwrap_or_else(|| self.default(key, &full, &at));
            entries.insert(key.name, entry);
        }
        Table { label, entries }
    }

    fn default(&mut self, key: &Key, full: &str, header: &At) -> Entry {
        let missing = Entry { value: Value::Nothing, at: header.clone(), broken: true };
        match key.default {
            Default::Value(text) => match DeValue::parse(text) {
                Ok(item) => self.entry(key, full, &item, &|_| At::File),
                Err(_) => missing,
            },
            Default::Computed(_) | Default::Unset(_) => Entry { broken: false, ..missing },
            Default::Required => {
                if self.complete {
                    let problem = self.report.error(header, full, "is missing");
                    problem.allowed(key.kind.allowed()).hint(format!("add {} = {}", key.name, key.sample));
                }
                missing
            }
        }
    }

    fn entry(&mut self, key: &Key, full: &str, item: &Item<'_>, locate: Locate<'_>) -> Entry {
        let at = locate(item.span());
        let (value, broken) = if key.kind.is_list() {
            self.items(key, full, item, locate)
        } else {
            match key.kind.read(item.get_ref()) {
                Ok(value) => (value, false),
                Err(fault) => (self.refuse(&at, key, full, fault), true),
            }
        };
        if let Some(warning) = key.kind.warning(&value) {
            self.report.warn(&at, full, warning);
        }
        Entry { value, at, broken }
    }

    fn refuse_element(&mut self, at: &At, key: &Key, full: &str, fault: Fault) {
        let problem = self.report.error(at, full, fault.what).allowed(key.kind.allowed_element());
        problem.hint = fault.hint;
    }

    fn refuse(&mut self, at: &At, key: &Key, full: &str, fault: Fault) -> Value {
        let problem = self.report.error(at, full, fault.what).allowed(key.kind.allowed());
        problem.hint = fault.hint;
        Value::Nothing
    }

    /// Reads a list, element by element. True: something in it is wrong.
    fn items(&mut self, key: &Key, full: &str, item: &Item<'_>, locate: Locate<'_>) -> (Value, bool) {
        let at = locate(item.span());
        let Some(items) = item.get_ref().as_array() else {
            let fault = wrong_type::<()>(item.get_ref(), "a list").err();
            let mut fault = fault.unwrap_or(Fault { what: String::new(), hint: None });
            if item.get_ref().is_str() {
                fault.hint = Some("write it in brackets".to_owned());
            }
            return (self.refuse(&at, key, full, fault), true);
        };
        match key.kind {
            Kind::Networks => self.networks(key, full, items, locate),
            Kind::Endpoints => self.endpoints(key, full, items, &at, locate),
            Kind::Shadows(_) if items.len() > MAX_SHADOWS => {
                let fault = Fault { what: format!("has {} shadows", items.len()), hint: None };
                (self.refuse(&at, key, full, fault), true)
            }
            Kind::Shadows(choices) => self.shadows(key, full, choices, items, locate),
            Kind::Strings { most, .. } if items.len() > most => {
                let fault = Fault { what: format!("has {} strings", items.len()), hint: None };
                (self.refuse(&at, key, full, fault), true)
            }
            Kind::Strings { max, .. } => self.strings(key, full, items, max, locate),
            _ => (Value::Nothing, false),
        }
    }

    fn shadows(
        &mut self,
        key: &Key,
        full: &str,
        choices: &[Choice],
        items: &[Item<'_>],
        locate: Locate<'_>,
    ) -> (Value, bool) {
        let mut list = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match read_shadow(choices, item.get_ref(), &list) {
                Ok(word) => list.push(word),
                Err(fault) => {
                    self.refuse_element(&locate(item.span()), key, &format!("{full}[{index}]"), fault)
                }
            }
        }
        let broken = list.len() < items.len();
        (Value::Words(list), broken)
    }

    fn networks(&mut self, key: &Key, full: &str, items: &[Item<'_>], locate: Locate<'_>) -> (Value, bool) {
        let mut list = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let read = match item.get_ref().as_str() {
                Some(text) => read_network(text),
                None => wrong_type(item.get_ref(), "a string"),
            };
            match read {
                Ok(network) => list.push(network),
                Err(fault) => {
                    self.refuse_element(&locate(item.span()), key, &format!("{full}[{index}]"), fault)
                }
            }
        }
        let broken = list.len() < items.len();
        (Value::Networks(list), broken)
    }

    fn strings(
        &mut self,
        key: &Key,
        full: &str,
        items: &[Item<'_>],
        max: usize,
        locate: Locate<'_>,
    ) -> (Value, bool) {
        let mut list = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let read = match item.get_ref().as_str() {
                Some(text) => read_string(text, max),
                None => wrong_type(item.get_ref(), "a string"),
            };
            match read {
                Ok(word) => list.push(word),
                Err(fault) => {
                    self.refuse_element(&locate(item.span()), key, &format!("{full}[{index}]"), fault)
                }
            }
        }
        let broken = list.len() < items.len();
        (Value::Words(list), broken)
    }

    fn endpoints(
        &mut self,
        key: &Key,
        full: &str,
        items: &[Item<'_>],
        at: &At,
        locate: Locate<'_>,
    ) -> (Value, bool) {
        if items.is_empty() {
            let fault = Fault { what: "has no endpoint".to_owned(), hint: None };
            return (self.refuse(at, key, full, fault), true);
        }
        let mut list = Vec::new();
        let mut broken = false;
        for (index, item) in items.iter().enumerate() {
            let full = format!("{full}[{index}]");
            match self.endpoint(key, full, item, locate) {
                Some(endpoint) => list.push(endpoint),
                None => broken = true,
            }
        }
        (Value::Endpoints(list), broken)
    }

    fn endpoint(&mut self, key: &Key, full: String, item: &Item<'_>, locate: Locate<'_>) -> Option<Endpoint> {
        let at = locate(item.span());
        let fault = match item.get_ref() {
            DeValue::String(text) => match read_address(text, Role::Dial) {
                Ok(address) => return Some(Endpoint { address, weight: 1, link_port: None, at }),
                Err(fault) => fault,
            },
            DeValue::Table(table) => {
                let table = self.table(&ENDPOINT, full, at.clone(), Some(table), locate);
                if table.entries.values().any(|e| e.broken) {
                    return None;
                }
                let weight = u32::try_from(table.int("weight")).unwrap_or(1);
                let link_port = u16::try_from(table.int("link_port")).ok().filter(|p| *p > 0);
                return Some(Endpoint { address: table.address("address")?, weight, link_port, at });
            }
            other => wrong_type::<()>(other, "\"IP:port\" or a table").err()?,
        };
        self.refuse_element(&at, key, &full, fault);
        None
    }

    fn overridden(&mut self, section: &Section, label: &str, key: &Key, full: &str) -> Option<Entry> {
        let element = label.strip_prefix(section.path).and_then(|l| l.strip_prefix('.')).map(env::normal);
        let element = element.filter(|_| section.list);
        let fits =
            |o: &Override| o.section.path == section.path && o.element == element && o.key.name == key.name;
        let index = self.vars.iter().rposition(fits)?;
        self.vars[index].used += 1;
        let (var, text) = (self.vars[index].var.clone(), self.vars[index].text.clone());
        match env::value(&key.kind, &text) {
            Ok(item) => Some(self.entry(key, full, &item, &|_| At::Env(var.clone()))),
            Err(what) => {
                let value = self.refuse(&At::Env(var.clone()), key, full, Fault { what, hint: None });
                Some(Entry { value, at: At::Env(var), broken: true })
            }
        }
    }

    /// Keys that the schema does not know, and tables that are planned.
    fn unknown_keys(&mut self, table: &DeTable<'_>, path: &str, label: &str, locate: Locate<'_>) {
        let section = if path == ENDPOINT.path { Some(&ENDPOINT) } else { schema::section(path) };
        for (name, _) in table {
            let (at, name) = (locate(name.span()), name.get_ref().as_ref());
            let full_path = join(path, name);
            let known =
                section.is_some_and(|s| s.key(name).is_some()) || schema::section(&full_path).is_some();
            if known {
                continue;
            }
            if let Some(hint) = schema::planned(&full_path) {
                self.report.error(&at, join(label, name), "this table is not built yet").hint(hint);
                continue;
            }
            let words: Vec<_> = children(path, section).collect();
            let hint = unknown_hint(path, name, &words);
            let problem = self.report.error(&at, join(label, name), "unknown key").allowed(words.join(", "));
            problem.hint = hint;
        }
    }

    fn unused_vars(&mut self, document: &Document) {
        for over in &self.vars {
            let at = At::Env(over.var.clone());
            let list = over.section.path;
            if over.element.is_some() && over.used == 0 && self.complete {
                let names: Vec<_> = document.list(list).iter().filter_map(|t| t.text("name")).collect();
                let what = format!("no [[{list}]] has this name");
                self.report.error(&at, "", what).allowed(format!("names in the file: {}", listed(&names)));
            } else if over.used > 1 {
                self.report
                    .error(&at, "", format!("fits more than one [[{list}]]"))
                    .hint("rename one of them");
            } else if over.used == 0 && over.element.is_none() {
                self.report.error(&at, "", "is given twice in different spelling");
            }
        }
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Names of the keys and tables under a path.
fn children(path: &str, section: Option<&'static Section>) -> impl Iterator<Item = &'static str> {
    let keys = section.into_iter().flat_map(|s| s.keys.iter().map(|k| k.name));
    let tables = SECTIONS.iter().filter_map(move |s| {
        let (parent, name) = s.path.rsplit_once('.').unwrap_or(("", s.path));
        (parent == path).then_some(name)
    });
    keys.chain(tables.collect::<Vec<_>>())
}

fn unknown_hint(path: &str, name: &str, words: &[&'static str]) -> Option<String> {
    if let Some(word) = nearest(name, words.iter().copied()) {
        return Some(format!("did you mean `{word}`?"));
    }
    let elsewhere = SECTIONS.iter().filter(|s| s.path != path && s.key(name).is_some());
    let headers: Vec<_> = elsewhere.map(Section::header).collect();
    if !headers.is_empty() {
        return Some(format!("`{name}` is a key of {}", headers.join(" and ")));
    }
    let planned = PLANNED.iter().find(|(p, _)| p.rsplit('.').next() == Some(name));
    planned.map(|(p, _)| format!("`{p}` is planned, but not built yet"))
}
