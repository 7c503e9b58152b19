//! The paths that a source file names, each in full: groups and renames of `use` are followed, `self` and `super` are
//! places in the tree. Works on text without comments, literals and tests.

use std::collections::BTreeMap;

/// A path in full, segments joined by `::`, and the line that names it. A glob ends in `*`.
pub(crate) type Mention = (usize, String);

/// What the rest of a file knows by a name that a `use` gave it.
type Names = BTreeMap<String, Vec<String>>;

/// All paths of two or more segments, and everything that is imported, of the file `name` (relative to `src`).
pub(crate) fn mentions(name: &str, text: &str) -> Vec<Mention> {
    let (home, tokens) = (module_of(name), tokens(text));
    let (imports, inline) = paths(&tokens);
    let mut names = Names::new();
    let mut found = Vec::new();
    for (line, segments, known_as) in imports {
        // `use time::Instant;` behind `use std::time;`: what was imported begins other imports.
        let full = resolved(&segments, &home, &names);
        found.push((line, full.join("::")));
        names.insert(known_as, full);
    }
    let used = inline.iter().map(|(line, segments)| (*line, resolved(segments, &home, &names).join("::")));
    found.extend(used);
    found
}

/// Whether `path` is `prefix` or below it. A `*` at the end of `prefix` stands for the rest of a name; a glob names all
/// that is below it.
pub(crate) fn is_below(path: &str, prefix: &str) -> bool {
    if let Some(glob) = path.strip_suffix("::*")
        && prefix.starts_with(&format!("{glob}::"))
    {
        return true;
    }
    match prefix.strip_suffix('*') {
        Some(begin) => path.starts_with(begin),
        None => path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")),
    }
}

/// `upstream/link_side/mod.rs` is `crate::upstream::link_side`.
fn module_of(name: &str) -> Vec<String> {
    let path = name.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let below = path.split('/').filter(|part| !["lib", "main"].contains(part));
    std::iter::once("crate").chain(below).map(str::to_owned).collect()
}

fn resolved(segments: &[String], home: &[String], names: &Names) -> Vec<String> {
    let mut at = match segments[0].as_str() {
        "self" | "super" => home.to_vec(),
        first => match names.get(first) {
            Some(full) => full.clone(),
            None => vec![first.to_owned()],
        },
    };
    let mut rest = &segments[usize::from(segments[0] != "super")..];
    while let Some((first, behind)) = rest.split_first()
        && first == "super"
    {
        at.truncate(at.len().saturating_sub(1).max(1));
        rest = behind;
    }
    // `std::{self}` is `std`.
    at.extend(rest.iter().filter(|s| *s != "self").cloned());
    at
}

/// Identifiers, `::`, and single characters, each with its line.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let len = match first {
                ':' if rest.starts_with("::") => 2,
                c if is_name(c) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
                c => c.len_utf8(),
            };
            if !first.is_whitespace() {
                found.push((line + 1, &rest[..len]));
            }
            rest = &rest[len..];
        }
    }
    found
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

type Import = (usize, Vec<String>, String);
type Inline = (usize, Vec<String>);

/// What `use` imports and by which name, and the paths of the code itself.
fn paths(tokens: &[(usize, &str)]) -> (Vec<Import>, Vec<Inline>) {
    let (mut imports, mut inline) = (Vec::new(), Vec::new());
    let at = |i: usize| tokens.get(i).map_or("", |t| t.1);
    let mut i = 0;
    while i < tokens.len() {
        // `use<'a>` is a bound.
        if at(i) == "use" && at(i + 1) != "<" {
            i = tree(tokens, i + 1, &[], &mut imports);
            continue;
        }
        let goes_on = i > 0 && (at(i - 1) == "." || at(i - 1) == "::" && i > 1 && !begins_anew(at(i - 2)));
        if !at(i).starts_with(is_name) || goes_on {
            i += 1;
            continue;
        }
        let (line, mut segments) = (tokens[i].0, vec![at(i).to_owned()]);
        while at(i + 1) == "::" && at(i + 2).starts_with(is_name) {
            segments.push(at(i + 2).to_owned());
            i += 2;
        }
        if segments.len() > 1 {
            inline.push((line, segments));
        }
        i += 1;
    }
    (imports, inline)
}

/// Whether `::` behind this token begins a path from the root: not behind a name or a type in angle brackets.
fn begins_anew(token: &str) -> bool {
    !token.starts_with(is_name) && token != ">"
}

/// One tree of a `use` from `i` on, below `prefix`; gives where it ends.
fn tree(tokens: &[(usize, &str)], mut i: usize, prefix: &[String], into: &mut Vec<Import>) -> usize {
    let at = |i: usize| tokens.get(i).map_or("", |t| t.1);
    let mut path = prefix.to_vec();
    let line = tokens.get(i).map_or(0, |t| t.0);
    loop {
        match at(i) {
            "::" => i += 1,
            "{" => {
                i += 1;
                while !["}", ""].contains(&at(i)) {
                    i = tree(tokens, i, &path, into).max(i + 1);
                    i += usize::from(at(i) == ",");
                }
                return i + 1;
            }
            "as" => {
                into.push((line, path, at(i + 1).to_owned()));
                return i + 2;
            }
            segment if segment == "*" || segment.starts_with(is_name) => {
                path.push(segment.to_owned());
                i += 1;
            }
            _ => break,
        }
    }
    let named = path.iter().rfind(|s| *s != "self").cloned();
    if let Some(name) = named
        && path.len() > prefix.len()
    {
        into.push((line, path, name));
    }
    i
}

#[test]
fn every_way_to_name_a_thing_is_seen() {
    let text = "use std::{fs, net::{TcpStream, UdpSocket as U}, io::{self, Read as _}}; use fs::File;\n\
                pub(crate) use super::super::detector;\nuse self::below::*;\nuse crate as all;\nuse ::socket2::SockRef;\n\
                fn f(a: impl Fn() + use<>) { all::clock::now(); fs::read(x); x.y::<u8>(); ::libc::kill(1, 2);\n\
                    <U as super::Trait>::bind(y); Vec::<u8>::new(); super::one::two(); tracing::info!(\"\"); }\n";
    let found: Vec<_> = mentions("link/driver.rs", text);
    let expected = [
        (1, "std::fs"),
        (1, "std::net::TcpStream"),
        (1, "std::net::UdpSocket"),
        (1, "std::io"),
        (1, "std::io::Read"),
        (1, "std::fs::File"),
        (2, "crate::detector"),
        (3, "crate::link::driver::below::*"),
        (4, "crate"),
        (5, "socket2::SockRef"),
        (6, "crate::clock::now"),
        (6, "std::fs::read"),
        (6, "libc::kill"),
        (7, "crate::link::Trait"),
        (7, "crate::link::one::two"),
        (7, "tracing::info"),
    ];
    assert_eq!(found, expected.map(|(line, path)| (line, path.to_owned())));
    assert_eq!(module_of("upstream/link_side/mod.rs"), ["crate", "upstream", "link_side"]);
    assert_eq!(mentions("lib.rs", "use super::x;"), [(1, "crate::x".to_owned())]);
    assert!(
        is_below("std::net::TcpStream", "std::net::Tcp*") && !is_below("std::net::IpAddr", "std::net::Tcp*")
    );
    assert!(
        is_below("std::fs", "std::fs")
            && is_below("std::fs::read", "std::fs")
            && !is_below("std::fsx", "std::fs")
    );
    assert!(is_below("std::*", "std::fs") && is_below("std::net::*", "std::net::Tcp*"));
    assert!(is_below("crate::*", "crate::clock") && !is_below("crate::wire::*", "crate::clock"));
}
