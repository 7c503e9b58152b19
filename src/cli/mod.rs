//! cli (see lib.rs).

/// Runs the command line and gives the exit code.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
