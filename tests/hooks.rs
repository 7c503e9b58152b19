//! The hook's socket of a running sidecar, and the ready hooks of docs/hooks, each run as its runtime runs it.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sidebeat::admin::hook::Hook;
use support::child::{Process, command, finish, run};
use support::pair::{Pair, Setup};
use support::service::{HANG, Service};
use support::{TempDir, eventually, have};

/// A pair whose far sidecar takes hooks at the returned path.
struct Scene {
    pair: Pair,
    socket: PathBuf,
    _service: Service,
    _dir: TempDir,
}

impl Scene {
    fn start() -> Scene {
        let (service, dir) = (Service::echo(), TempDir::new());
        let socket = dir.join("hook.sock");
        let toml = format!("[maintenance]\nsocket = \"{}\"\nmode = \"0600\"\n", socket.display());
        let pair = Setup::new(service.addr).far_extra(&toml).start();
        Scene { pair, socket, _service: service, _dir: dir }
    }

    fn connect(&self) -> UnixStream {
        let s = UnixStream::connect(&self.socket).unwrap();
        s.set_read_timeout(Some(HANG)).unwrap();
        s
    }

    fn say(&self, line: &str) -> String {
        answer(self.connect(), line)
    }

    /// What the far sidecar says of its hook.
    fn far_hook(&self) -> String {
        let status: serde_json::Value = serde_json::from_str(&self.pair.far().status()).unwrap();
        let said = status["inbounds"][0]["evidence"].as_array().unwrap();
        said.iter().map(|s| s.as_str().unwrap().to_owned()).find(|s| s.starts_with("E7")).unwrap_or_default()
    }

    /// Whether the near sidecar believes in a pause: a frozen service is not ready.
    fn near_ready(&self) -> String {
        let status: serde_json::Value = serde_json::from_str(&self.pair.near.status()).unwrap();
        status["upstreams"][0]["endpoints"][0]["facets"]["ready"].as_str().unwrap().to_owned()
    }

    /// Waits until both ends show the pause with this reason.
    fn wait_seen(&self, reason: &str) {
        eventually(Duration::from_secs(10), "the pause is seen", || {
            let (far, near) = (self.far_hook(), self.near_ready());
            let both = far.contains(reason) && near == "no";
            if both { Ok(()) } else { Err(format!("{far}; ready at the other end: {near}")) }
        });
    }

    /// Waits for the line in the log, for pauses that are over before anybody can look.
    fn wait_logged(&self, text: &str) {
        eventually(Duration::from_secs(10), &format!("{text:?} is logged"), || {
            let log = self.pair.far().log();
            if log.contains(text) { Ok(()) } else { Err(log) }
        });
    }
}

fn answer(mut s: UnixStream, line: &str) -> String {
    s.write_all(line.as_bytes()).unwrap();
    let mut said = String::new();
    BufReader::new(s).read_line(&mut said).unwrap();
    said
}

fn hooks(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/hooks").join(name)
}

#[test]
fn a_pause_is_announced_to_the_other_end_and_ended_early() {
    let s = Scene::start();
    assert!(s.far_hook().contains("no pause is announced"), "{}", s.far_hook());
    assert_eq!(s.say("pause 20s full gc\n"), "ok announced a pause of 20s\n");
    s.wait_seen("full gc");
    assert_eq!(s.say("resume\n"), "ok the pause is over\n");
    eventually(Duration::from_secs(10), "it is over", || {
        let (far, near) = (s.far_hook(), s.near_ready());
        let over = far.contains("no pause") && near != "no";
        if over { Ok(()) } else { Err(format!("{far}; {near}")) }
    });
    s.pair.finish();
}

#[test]
fn whatever_is_said_is_answered_and_bounded() {
    let s = Scene::start();
    let table = [
        ("pause 0s\n", "error the duration is more than 0"),
        ("pause 31s\n", "error the duration is more than 0 and at most 30s"),
        ("pause\n", "error no duration"),
        ("GET / HTTP/1.1\r\n\r\n", "error `GET` is not known"),
        ("\n", "error an empty line"),
        ("pause 1ms no line end", "ok announced"),
    ];
    for (line, wanted) in table {
        let stream = s.connect();
        let closer = stream.try_clone().unwrap();
        let said = if line.ends_with('\n') {
            answer(stream, line)
        } else {
            let mut stream = stream;
            stream.write_all(line.as_bytes()).unwrap();
            closer.shutdown(std::net::Shutdown::Write).unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            said
        };
        assert!(said.starts_with(wanted) && said.ends_with('\n'), "{line:?}: {said:?}");
    }
    // Without an end: cut at the limit, told, let go.
    let mut flood = s.connect();
    let _ = flood.write_all(&vec![b'p'; 1 << 20]);
    let mut said = Vec::new();
    let _ = flood.read_to_end(&mut said);
    assert!(said.starts_with(b"error a line has at most 512 bytes\n"), "{}", String::from_utf8_lossy(&said));
    // Several lines on one connection, without waiting.
    let mut many = s.connect();
    many.write_all(b"pause 5s one\nnonsense\nresume\n").unwrap();
    many.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = String::new();
    many.read_to_string(&mut said).unwrap();
    let words: Vec<_> = said.lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(words, ["ok", "error", "ok"], "{said}");
    s.pair.finish();
}

#[test]
fn many_hooks_at_once_are_served_or_told_and_silent_ones_cost_nothing() {
    let s = Scene::start();
    let silent: Vec<_> = (0..20).map(|_| s.connect()).collect();
    let asking: Vec<_> = (0..8).map(|_| s.connect()).collect();
    for (i, c) in asking.into_iter().enumerate() {
        assert!(answer(c, &format!("pause 10ms n{i}\n")).starts_with("ok "));
    }
    let more: Vec<_> = (0..40).map(|_| s.connect()).collect();
    let told = more.iter().filter(|c| {
        let mut byte = [0];
        let _ = c.set_read_timeout(Some(Duration::from_millis(200)));
        (&mut &**c).read(&mut byte).is_ok_and(|n| n == 1 && byte[0] == b'e')
    });
    assert!(told.count() >= 40 - 32, "beyond the limit each is told");
    drop((silent, more));
    eventually(Duration::from_secs(10), "there is room again", || {
        let said = s.say("pause 10ms again\n");
        if said.starts_with("ok ") { Ok(()) } else { Err(said) }
    });
    s.pair.finish();
}

#[test]
fn the_file_has_its_permissions_and_goes_with_the_sidecar() {
    let s = Scene::start();
    let mode = std::fs::metadata(&s.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (socket, dir) = (s.socket.clone(), s._dir);
    s.pair.finish();
    assert!(!socket.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left beside it");
}

#[test]
fn a_leftover_is_replaced_and_everything_else_is_left_alone() {
    let dir = TempDir::new();
    let path = dir.join("hook.sock");
    // Left by one that was killed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let hook = Hook::bind(&path, 0o660).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let taken = Hook::bind(&path, 0o660).unwrap_err();
    assert!(taken.contains("served by another process"), "{taken}");
    drop(hook);
    assert!(!path.exists());

    std::fs::write(&path, "precious").unwrap();
    let file = Hook::bind(&path, 0o660).unwrap_err();
    assert!(file.contains("is no socket"), "{file}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");

    let none = Hook::bind(&dir.join("nowhere/hook.sock"), 0o660).unwrap_err();
    assert!(none.contains("make it before"), "{none}");
    let open = dir.join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let anybody = Hook::bind(&open.join("hook.sock"), 0o660).unwrap_err();
    assert!(anybody.contains("chmod o-w"), "{anybody}");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
    Hook::bind(&open.join("hook.sock"), 0o660).unwrap();
}

#[test]
fn one_that_took_the_place_is_not_removed() {
    let dir = TempDir::new();
    let path = dir.join("hook.sock");
    let hook = Hook::bind(&path, 0o660).unwrap();
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(hook);
    assert!(path.exists());
    drop(other);
}

#[test]
fn a_sidecar_that_cannot_have_its_socket_says_why_and_ends_with_78() {
    let dir = TempDir::new();
    let config = dir.join("c.toml");
    let text = format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[[inbound]]\nname = \"a\"\nlink_listen = \"127.0.0.1:0\"\n\
         service = \"127.0.0.1:9\"\n[maintenance]\nsocket = \"{}/none/hook.sock\"\n",
        dir.path().display()
    );
    std::fs::write(&config, text).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_sidebeat"));
    let out = finish(run.arg("run").arg("-c").arg(&config), Duration::from_secs(20));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(78), "{said}");
    assert!(said.contains("c.toml:8:10: maintenance.socket: the folder"), "{said}");
}

#[test]
fn the_command_announces_by_the_socket() {
    let s = Scene::start();
    let program = env!("CARGO_BIN_EXE_sidebeat");
    let mut say = Command::new(program);
    say.args(["maintenance", "--for", "10s 500ms", "--reason", "deploy 7", "--socket"]).arg(&s.socket);
    assert_eq!(run(&mut say), "ok announced a pause of 10s 500ms\n");
    s.wait_seen("deploy 7");
    let mut long = Command::new(program);
    let out = finish(long.args(["maintenance", "--for", "1h", "--socket"]).arg(&s.socket), HANG);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("at most 30s"));
    let mut none = Command::new(program);
    let out = finish(none.args(["maintenance", "--for", "1s", "--socket", "/nonexistent/x"]), HANG);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("hint:"));
    s.pair.finish();
}

#[test]
fn the_shell_line_for_backups() {
    if !have(&["sh"]) {
        return;
    }
    let s = Scene::start();
    let bin = Path::new(env!("CARGO_BIN_EXE_sidebeat")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut backup = command("sh", None);
    backup.arg(hooks("backup.sh")).arg(&s.socket).args(["echo", "backed up"]).env("PATH", path);
    let said = run(&mut backup);
    assert!(said.starts_with("ok ") && said.ends_with("backed up\nok the pause is over\n"), "{said}");
    s.wait_logged("reason=\"backup\"");
    s.wait_logged("maintenance is over");
    s.pair.finish();
}

#[test]
fn the_hook_for_python() {
    if !have(&["python3"]) {
        return;
    }
    let s = Scene::start();
    let mut python = command("python3", None);
    python.arg(hooks("sidebeat_gc.py")).arg(&s.socket).env("PYTHONDONTWRITEBYTECODE", "1");
    assert_eq!(run(&mut python), "ok announced a pause of 3s\n");
    // The last thing it does is a real collection, announced at its begin and ended at its end.
    s.wait_logged("reason=\"gc generation 2\"");
    s.wait_logged("maintenance is over");
    s.pair.finish();
}

#[test]
fn the_hook_for_the_jvm() {
    if !there("java", "-version") {
        return;
    }
    let s = Scene::start();
    let mut java = command("java", None);
    java.args(["-Xmx48m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    let said = run(java.arg(hooks("SidebeatGcHook.java")).arg(&s.socket));
    assert!(said.starts_with("ok announced a pause of "), "{said}");
    s.wait_logged("gc near: old generation");
    s.pair.finish();
}

/// The recipe of docs/hooks.md as it is written, but for the place of the socket: a service that knows nothing of it fills
/// its heap, and both ends show what its JVM announces.
#[test]
fn the_agent_for_the_jvm_without_touching_the_service() {
    if !(there("java", "-version") && there("javac", "-version") && there("jar", "--version")) {
        return;
    }
    let docs = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/hooks.md")).unwrap();
    let recipe = docs.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let recipe: Vec<_> = recipe.filter(|block| block.contains("-javaagent")).collect();
    let [recipe] = recipe[..] else { panic!("one recipe, not {}", recipe.len()) };
    let (s, dir) = (Scene::start(), TempDir::new());
    let script = recipe.replace("/run/sidebeat/hook.sock", s.socket.to_str().unwrap());
    assert_ne!(script, recipe);
    std::fs::copy(hooks("SidebeatGcHook.java"), dir.join("SidebeatGcHook.java")).unwrap();
    std::fs::write(dir.join("Service.java"), SERVICE).unwrap();
    let jar = "javac -d service Service.java && jar cfe service.jar Service -C service .";
    run(command("sh", None).args(["-ec", jar]).current_dir(dir.path()));
    // For `java` only, unlike other variables: a compiler needs more memory.
    let heap = "-Xmx48m -XX:+UseSerialGC -XX:TieredStopAtLevel=1";
    let mut sh = command("sh", None);
    sh.args(["-ec", &script]).current_dir(dir.path()).env("JDK_JAVA_OPTIONS", heap);
    let mut service = Process::start(&mut sh, &dir.join("service.log"));
    s.wait_seen("gc near: old generation");
    std::fs::write(dir.join("stop"), "").unwrap();
    let ended = eventually(HANG, "the service ends", || service.ended().ok_or_else(|| service.log()));
    assert!(ended.success(), "{}", service.log());
    s.pair.finish();
}

/// Keeps most of its heap, and makes garbage until it is told to stop or its folder is gone.
const SERVICE: &str = r#"
import java.io.File;
import java.util.ArrayList;
import java.util.List;

public class Service {
    public static void main(String[] args) throws Exception {
        Runtime heap = Runtime.getRuntime();
        List<byte[]> kept = new ArrayList<>();
        while (new File("service.jar").exists() && !new File("stop").exists()) {
            for (int i = 0; i < 16; i++) {
                byte[] some = new byte[64 * 1024];
                if (heap.totalMemory() - heap.freeMemory() < heap.maxMemory() * 9 / 10) {
                    kept.add(some);
                }
            }
            Thread.sleep(1);
        }
    }
}
"#;

/// A bug of an earlier version: the JVM's thread for notices waited for a stopped sidecar for as long as it was stopped,
/// and the notices of later collections piled up behind it.
#[test]
fn the_hook_for_the_jvm_does_not_wait_for_a_sidecar_that_hangs() {
    if !there("java", "-version") {
        return;
    }
    let s = Scene::start();
    s.pair.far().process().signal(rustix::process::Signal::STOP);
    let mut java = command("java", None);
    java.args(["-Xmx48m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    let out = finish(java.arg(hooks("SidebeatGcHook.java")).arg(&s.socket), Duration::from_secs(60));
    s.pair.far().process().signal(rustix::process::Signal::CONT);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("no answer within 200 ms"), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(1));
    s.pair.finish();
}

#[test]
fn the_hook_for_go() {
    if !there("go", "version") {
        return;
    }
    let s = Scene::start();
    let mut go = command("go", None);
    go.arg("run").arg(hooks("sidebeat_pause.go")).arg(&s.socket);
    assert_eq!(run(&mut go), "ok announced a pause of 3s\n");
    s.wait_logged("reason=\"free memory\"");
    s.wait_logged("maintenance is over");
    s.pair.finish();
}

/// True where a runtime that only its own hook needs is installed; said aloud where it is not. No failure with `CI=true`
/// either: `.ci/run` installs neither a JVM nor Go.
fn there(program: &str, version: &str) -> bool {
    let found = command(program, None).arg(version).output().is_ok_and(|o| o.status.success());
    if !found {
        support::shout(&format!("SKIPPED: no {program} here, so its hook of docs/hooks was NOT run"));
    }
    found
}
