//! The program as scripts see it: exit codes, what goes to stdout and what to stderr.

#![expect(clippy::unwrap_used, reason = "a test may panic; clippy only knows #[test] functions")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn sidebeat(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidebeat"));
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

fn ran(output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn run(args: &[&str]) -> Ran {
    ran(sidebeat(args).output().unwrap())
}

fn sample(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name).to_str().unwrap().to_owned()
}

/// A file of this test run, removed at the end.
struct Temp(PathBuf);

impl Temp {
    fn new(name: &str, text: &[u8]) -> Temp {
        let path = std::env::temp_dir().join(format!("sidebeat-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Temp(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn usage_errors_exit_64_on_stderr() {
    let cases: &[&[&str]] = &[
        &[],
        &["fly"],
        &["run", "--nonsense"],
        &["run", "-c"],
        &["check"],
        &["check", "a", "b"],
        &["maintenance"],
        &["maintenance", "--for", "soon"],
        &["status", "--admin", "nowhere"],
        &["config"],
        &["config", "fly"],
        &["bench"],
        &["bench", "faults", "--traffic", "mad"],
        &["sim", "--scenario", "storm"],
        &["sim", "--detector", "promise"],
        &["sim", "--hours", "0"],
        &["replay"],
    ];
    for args in cases {
        let ran = run(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(64), ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("Usage:") || ran.err.contains("--help"), "{args:?}: {}", ran.err);
    }
    assert!(run(&["chek", "x"]).err.contains("'check'"));
}

#[test]
fn help_and_version_are_output() {
    let commands =
        ["run", "check", "demo", "bench", "sim", "replay", "status", "maintenance", "healthcheck", "config"];
    let help = run(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    for word in commands.iter().chain(&["Examples:", "78"]) {
        assert!(help.out.contains(word), "{word} is missing in {}", help.out);
    }
    for command in commands {
        assert_eq!(run(&[command, "--help"]).code, Some(0), "{command}");
    }
    let version = run(&["--version"]);
    assert_eq!(version.code, Some(0));
    assert_eq!(version.out.trim(), concat!("sidebeat ", env!("CARGO_PKG_VERSION")));
    assert_eq!(run(&["-V"]).out, version.out);
}

#[test]
fn check_accepts_a_valid_file() {
    let ran = run(&["check", &sample("valid/many.toml")]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.ends_with("many.toml: valid (2 inbound, 2 outbound)\n"), "{}", ran.out);
}

#[test]
fn check_shows_warnings_on_stderr_and_succeeds() {
    let mut check = sidebeat(&["check", &sample("valid/full.toml")]);
    check.env("SIDEBEAT__MAINTENANCE__SOCKET", "/nonexistent/hook.sock");
    let ran = ran(check.output().unwrap());
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("inbound.orders.protocol: HTTP mode is not built yet"), "{}", ran.err);
    // What starts the sidecar may make the folder first.
    assert!(ran.err.contains("warning: maintenance.socket: "), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
}

#[test]
fn check_and_run_report_all_errors_and_exit_78() {
    let file = sample("invalid/unknown-keys.toml");
    for args in [&["check", file.as_str()][..], &["run", "-c", &file], &["run", "--config", &file]] {
        let ran = run(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(78), ""), "{args:?}: {}", ran.err);
        for part in [
            "unknown-keys.toml:4:1: beat.idel: unknown key",
            "\n  4 | idel = \"1s\"\n    | ^^^^\n",
            "allowed: idle, active, duty",
            "hint: did you mean `idle`?",
            "inbound.orders.port",
            ": 5 errors",
        ] {
            assert!(ran.err.contains(part), "{part:?} is missing in {}", ran.err);
        }
    }
}

#[test]
fn every_invalid_sample_exits_78() {
    let folder = sample("invalid");
    let files = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path());
    let files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    assert!(files.len() >= 25);
    for file in files {
        assert_eq!(run(&["check", file.to_str().unwrap()]).code, Some(78), "{}", file.display());
    }
}

#[test]
fn unreadable_files_exit_78() {
    let latin1 = Temp::new("latin1.toml", b"[node]\nid = \"caf\xe9\"\n");
    let large = Temp::new("large.toml", &vec![b'#'; (1 << 20) + 1]);
    let cases = [
        ("/nonexistent/sidebeat.toml", "cannot be read"),
        ("/", "is a directory"),
        ("/dev/zero", "is no regular file"),
        (large.path(), "is larger than 1 MiB"),
        (latin1.path(), "is not UTF-8"),
    ];
    for (path, what) in cases {
        let ran = run(&["check", path]);
        assert_eq!(ran.code, Some(78), "{path}");
        assert!(ran.err.contains(path) && ran.err.contains(what), "{}", ran.err);
    }
}

/// A configuration that another program makes is checked without a file.
#[test]
fn check_reads_a_pipe() {
    let mut check = sidebeat(&["check", "/dev/stdin"]);
    check.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = check.spawn().unwrap();
    let text = std::fs::read(sample("valid/many.toml")).unwrap();
    // Its end of the pipe is closed with this value.
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

#[test]
fn run_takes_its_file_from_the_environment() {
    let ran =
        ran(sidebeat(&["run"]).env("SIDEBEAT_CONFIG", sample("invalid/nothing.toml")).output().unwrap());
    assert_eq!(ran.code, Some(78));
    assert!(ran.err.contains("nothing.toml: nothing to do"), "{}", ran.err);
}

#[test]
fn overrides_are_checked_too() {
    let file = sample("valid/many.toml");
    let with = |name: &str, value: &str| ran(sidebeat(&["check", &file]).env(name, value).output().unwrap());
    let unknown = with("SIDEBEAT__BEAT__IDEL", "1s");
    assert_eq!(unknown.code, Some(78));
    assert!(
        unknown.err.contains("environment variable SIDEBEAT__BEAT__IDEL: unknown key `idel`"),
        "{}",
        unknown.err
    );
    assert_eq!(with("SIDEBEAT__OUTBOUND__STOCK_EU__CUT_AFTER", "off").code, Some(0));
    assert_eq!(with("SIDEBEAT__OUTBOUND__STOCK_EU__CUT_AFTER", "never").code, Some(78));
    assert_eq!(with("SIDEBEATS__X", "1").code, Some(0));
}

/// Answers every request with 200, as long as the test program runs.
fn answers_all() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut io in listener.incoming().flatten() {
            let (mut got, mut buf) = (Vec::new(), [0; 1024]);
            while !got.windows(4).any(|w| w == b"\r\n\r\n") {
                match io.read(&mut buf) {
                    Ok(n @ 1..) => got.extend_from_slice(&buf[..n]),
                    _ => break,
                }
            }
            let _ = io.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nasked\n");
        }
    });
    at
}

/// A bug of an earlier version: a sidecar that listened elsewhere than on the default port was never asked by its own
/// health check, which then spoke for another sidecar in the same network namespace.
#[test]
fn commands_ask_the_sidecar_of_the_configuration() {
    let (at, nobody) = (answers_all(), "127.0.0.1:1".to_owned());
    let port = at.rsplit_once(':').unwrap().1;
    let listens = |at: &str| format!("[admin]\nlisten = \"{at}\"\n");
    let here = Temp::new("here.toml", listens(&at).as_bytes());
    let anywhere = Temp::new("anywhere.toml", listens(&format!("0.0.0.0:{port}")).as_bytes());
    let broken = Temp::new("broken.toml", format!("{}nonsense = 1\n", listens(&at)).as_bytes());
    let elsewhere = Temp::new("elsewhere.toml", listens(&nobody).as_bytes());
    // Argument, SIDEBEAT_ADMIN, SIDEBEAT__ADMIN__LISTEN, file: the first that is there is asked.
    let cases = [
        (Some(&at), Some(&nobody), Some(&nobody), &elsewhere),
        (None, Some(&at), Some(&nobody), &elsewhere),
        (None, None, Some(&at), &elsewhere),
        (None, None, None, &here),
        (None, None, None, &anywhere),
        (None, None, None, &broken),
    ];
    for (argument, admin, listen, file) in cases {
        let ask = |args: &[&str]| {
            let mut command = sidebeat(args);
            command.args(argument.map(|at| format!("--admin={at}"))).env("SIDEBEAT_CONFIG", file.path());
            command.envs(admin.map(|at| ("SIDEBEAT_ADMIN", at)));
            command.envs(listen.map(|at| ("SIDEBEAT__ADMIN__LISTEN", at)));
            ran(command.output().unwrap())
        };
        let what = format!("{argument:?} {admin:?} {listen:?} {}", file.path());
        let healthy = ask(&["healthcheck"]);
        assert_eq!((healthy.code, healthy.out.as_str()), (Some(0), "ready\n"), "{what}: {}", healthy.err);
        let told = ask(&["maintenance", "--for", "1s"]);
        assert_eq!((told.code, told.out.as_str()), (Some(0), "asked\n"), "{what}: {}", told.err);
        // What it answers is no status.
        let status = ask(&["status"]);
        assert!(
            status.err.contains("broken answer from") && status.err.contains(port),
            "{what}: {}",
            status.err
        );
    }
    let mut unasked = sidebeat(&["healthcheck"]);
    let none = ran(unasked.env("SIDEBEAT_CONFIG", elsewhere.path()).output().unwrap());
    assert_eq!(none.code, Some(1));
    assert!(none.err.contains("nobody answers on 127.0.0.1:1:"), "{}", none.err);
}

#[test]
fn a_variable_that_is_not_utf8_is_no_panic() {
    use std::os::unix::ffi::OsStrExt;
    let file = sample("valid/many.toml");
    let bad = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let with = |name: &str| ran(sidebeat(&["check", &file]).env(name, bad).output().unwrap());
    assert_eq!(with("OTHER").code, Some(0));
    assert_eq!(with("SIDEBEAT__BEAT__IDLE").code, Some(78));
}

#[test]
fn config_defaults_prints_the_committed_file() {
    let ran = run(&["config", "defaults"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out == std::fs::read_to_string(sample("default.toml")).unwrap());
}

#[test]
fn sim_prints_one_report_and_draws_what_it_is_asked_for() {
    let small =
        ["sim", "--scenario", "steady", "--hours", "0.01", "--seeds", "2", "--faults", "8", "--seed", "3"];
    let (svg, csv) = (Temp::new("trade.svg", b""), Temp::new("score.csv", b""));
    let files = ["--svg", svg.path(), "--score-svg", csv.path()];
    let json = run(&[&small[..], &files[..], &["--json"]].concat());
    assert_eq!(json.code, Some(0), "{}", json.err);
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 2 * 9 - 1, "promise-20 causes the same beats");
    assert_eq!(report["rows"][0]["detector"], "promise-20");
    assert_eq!(report["rows"][0]["undetected"], 0);
    assert!(json.err.contains("runs"), "progress goes to stderr: {}", json.err);
    let drawn = std::fs::read_to_string(svg.path()).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("promise-20"), "{drawn}");
    assert!(std::fs::read_to_string(csv.path()).unwrap().lines().count() > 1000);
    let table = run(&[&small[..], &["--detector", "promise-20"]].concat());
    assert_eq!(table.out, run(&[&small[..], &["--detector", "promise-20"]].concat()).out, "the same seed");
    assert!(table.out.contains("frames each 5-20 ms"), "{}", table.out);
    let unwritable = run(&[&small[..], &["--svg", "/nonexistent/x.svg"]].concat());
    assert_eq!((unwritable.code, unwritable.out.as_str()), (Some(1), ""));
    assert!(unwritable.err.contains("/nonexistent/x.svg"), "{}", unwritable.err);
}

#[test]
fn a_closed_pipe_is_no_panic_and_a_full_disk_is_an_error() {
    for args in [&["config", "defaults"][..], &["--help"], &["--version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = ran(sidebeat(args).stdout(writer).stderr(Stdio::piped()).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{args:?}");
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = ran(sidebeat(&["config", "defaults"]).stdout(full).stderr(Stdio::piped()).output().unwrap());
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("cannot write"), "{}", ran.err);
}
