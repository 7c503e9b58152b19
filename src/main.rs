//! The `sidebeat` program: command line to exit code.

fn main() -> std::process::ExitCode {
    sidebeat::cli::main()
}
