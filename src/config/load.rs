//! A file and the environment to a checked configuration.

use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use toml::de::DeTable;

use super::checked::Config;
use super::problem::{At, Errors, Report, Warning};
use super::{build, env, read, relations};

/// Largest file, bytes. Ten thousand endpoints fit; a wrong path (a log, a device) is refused early.
pub const MAX_BYTES: u64 = 1 << 20;

/// Reads and checks a file, or a pipe such as /dev/stdin. `env` are all environment variables; those with another prefix are
/// ignored.
///
/// # Errors
/// Every problem found, in the order of the file; or why it could not be read.
pub fn load(
    path: &Path,
    env: impl Iterator<Item = (String, String)>,
) -> Result<(Config, Vec<Warning>), Errors> {
    load_from(path, true, env)
}

/// As [`load`], in a program that runs: a pipe, whose other end may never say anything, is refused.
///
/// # Errors
/// As [`load`].
pub fn load_again(
    path: &Path,
    env: impl Iterator<Item = (String, String)>,
) -> Result<(Config, Vec<Warning>), Errors> {
    load_from(path, false, env)
}

fn load_from(
    path: &Path,
    pipe: bool,
    env: impl Iterator<Item = (String, String)>,
) -> Result<(Config, Vec<Warning>), Errors> {
    let name = path.display().to_string();
    let text = text_of(path, pipe).map_err(|(what, hint)| Errors::file(&name, what, hint))?;
    parse(&text, &name, env)
}

/// Where a sidecar with this file and environment serves its admin port: what the environment says, else the file, else the
/// default. What is missing or wrong is passed over: the sidecar that is looked for may have been started before it was.
pub fn admin_listen(path: &Path, env: impl Iterator<Item = (String, String)>) -> SocketAddr {
    // A pipe would be taken from the program that is to read it.
    let text = text_of(path, false).unwrap_or_default();
    let none = Vec::new();
    let tries: [(&str, Vec<(String, String)>); 3] =
        [(&text, env.collect()), (&text, none.clone()), ("", none)];
    tries.into_iter().find_map(|(text, env)| listen_of(text, env.into_iter())).unwrap_or(build::NOWHERE)
}

fn listen_of(text: &str, env: impl Iterator<Item = (String, String)>) -> Option<SocketAddr> {
    let mut report = Report::new("", text);
    let (root, _) = DeTable::parse_recoverable(text);
    let vars = env::overrides(env, &mut report);
    let document = read::read(root.get_ref(), vars, false, &mut report);
    document.table("admin").address("listen")
}

/// The problem with a value that is right in itself and cannot be used on this machine, placed where it was written.
pub fn blame(
    path: &Path,
    env: impl Iterator<Item = (String, String)>,
    (section, key): (&str, &str),
    what: &str,
) -> Errors {
    let name = path.display().to_string();
    // A pipe was read already: then there is no line to name.
    let text = text_of(path, false).unwrap_or_default();
    let mut report = Report::new(&name, &text);
    let (root, _) = DeTable::parse_recoverable(&text);
    let vars = env::overrides(env, &mut report);
    let document = read::read(root.get_ref(), vars, false, &mut report);
    let table = document.table(section);
    let mut told = Report::new(&name, &text);
    let problem = told.error(&table.entry(key).at, table.key(key), what).clone();
    Errors(vec![problem])
}

/// Checks a text; `name` stands for it in messages.
///
/// # Errors
/// Every problem found, in the order of the text.
pub fn parse(
    text: &str,
    name: &str,
    env: impl Iterator<Item = (String, String)>,
) -> Result<(Config, Vec<Warning>), Errors> {
    let mut report = Report::new(name, text);
    let (root, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        let at = At::Span(error.span().unwrap_or(0..0));
        report.error(&at, "", format!("not TOML: {}", error.message()));
    }
    let vars = env::overrides(env, &mut report);
    let document = read::read(root.get_ref(), vars, syntax.is_empty(), &mut report);
    report.drop_echoes(syntax.len());
    if syntax.is_empty() {
        relations::check(&document, &mut report);
    }
    let config = build::build(&document, &mut report);
    report.finish(config)
}

type Unreadable = (String, Option<&'static str>);

fn text_of(path: &Path, pipe: bool) -> Result<String, Unreadable> {
    // To open a pipe waits for its writer, unless it is asked not to.
    let flags = if pipe { rustix::fs::OFlags::empty() } else { rustix::fs::OFlags::NONBLOCK };
    let file = std::fs::File::options().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = file.map_err(|e| unreadable(&e))?;
    let kind = file.metadata().map_err(|e| unreadable(&e))?.file_type();
    if kind.is_dir() {
        return Err(("is a directory, not a file".to_owned(), Some("name the file in it")));
    }
    if kind.is_fifo() && !pipe {
        return Err((
            "is a pipe: it cannot be read again".to_owned(),
            Some("a configuration that is to be reloaded stands in a regular file"),
        ));
    }
    if !kind.is_file() && !kind.is_fifo() {
        return Err(("is no regular file".to_owned(), Some("is this the right file?")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| unreadable(&e))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err((format!("is larger than {} MiB", MAX_BYTES >> 20), Some("is this the right file?")));
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = good.iter().filter(|b| **b == b'\n').count() + 1;
        (format!("is not UTF-8 text (first bad byte in line {line})"), None)
    })
}

fn unreadable(error: &std::io::Error) -> Unreadable {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => Some("`sidebeat config defaults` prints a file to begin with"),
        _ => None,
    };
    (format!("cannot be read: {error}"), hint)
}

impl Config {
    /// A warning if the limits need more file descriptors than `may_open` (RLIMIT_NOFILE).
    pub fn descriptor_warning(&self, may_open: u64) -> Option<String> {
        relations::descriptors(self, may_open)
    }
}
