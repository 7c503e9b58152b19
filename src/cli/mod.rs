//! The command line: arguments as typed ([`args`]), one function per command (`commands`), exit codes.

pub mod args;
pub mod logging;

mod commands;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// A wrong command line (EX_USAGE of sysexits).
pub const USAGE: u8 = 64;
/// A wrong configuration (EX_CONFIG of sysexits).
pub const CONFIG: u8 = 78;
/// Something failed while running.
pub const RUNTIME: u8 = 1;

/// Runs the command line and gives the exit code.
pub fn main() -> ExitCode {
    match args::Cli::try_parse() {
        Ok(cli) => commands::run(cli.command),
        Err(error) => usage(&error),
    }
}

/// Help and version that were asked for are output; everything else is a usage error on stderr.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(&text),
        _ => {
            complain(&text);
            ExitCode::from(USAGE)
        }
    }
}

/// The environment as text, for [`crate::config::load`]; a variable that is not UTF-8 keeps replacement characters, which no value allows.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |s: std::ffi::OsString| s.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

/// Writes to stdout. A reader that went away (`| head`) is not an error, a full disk is.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            complain(&format!("sidebeat: cannot write the output: {e}\n"));
            ExitCode::from(RUNTIME)
        }
    }
}

/// Writes to stderr; there is nobody left to tell if that fails.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
