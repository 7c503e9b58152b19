use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

fn asked(service: SocketAddr, question: &Question, ms: u64) -> Result<String, String> {
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(ask(service, question, Duration::from_millis(ms)))
}

/// A listener that does one thing with each connection, and its address.
fn serving(handle: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = l.local_addr().unwrap();
    std::thread::spawn(move || l.incoming().flatten().for_each(handle));
    at
}

fn nowhere() -> SocketAddr {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    l.local_addr().unwrap()
}

fn answering(answer: &'static [u8]) -> SocketAddr {
    serving(move |mut s| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && s.read(&mut byte).is_ok_and(|n| n > 0) {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("GET /health?x=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("host: 127.0.0.1:"), "{head}");
        let _ = s.write_all(answer);
    })
}

#[test]
fn http_is_judged_by_its_status() {
    let question =
        Question::Http { path: "/health?x=1".into(), status: Statuses(vec![(200, 299), (418, 418)]) };
    assert_eq!(question.what(), "http /health?x=1");
    let table: [(&[u8], Result<&str, &str>); 6] = [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Ok("status 200")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Ok("status 204")),
        (b"HTTP/1.0 418 Tea\r\n\r\n", Ok("status 418")),
        (b"HTTP/1.1 503 Full\r\ncontent-length: 0\r\n\r\n", Err("status 503, not 200-299,418")),
        (b"SSH-2.0-x\r\n", Err("no HTTP answer")),
        (b"", Err("no HTTP answer")),
    ];
    for (answer, wanted) in table {
        let got = asked(answering(answer), &question, 10_000);
        match wanted {
            Ok(text) => assert_eq!(got.as_deref(), Ok(text)),
            Err(text) => assert!(got.as_ref().is_err_and(|e| e.starts_with(text)), "{got:?}, not {text}"),
        }
    }
}

#[test]
fn an_endless_head_is_cut_and_silence_is_late() {
    let question = Question::Http { path: "/".into(), status: Statuses(vec![(200, 399)]) };
    let flood = serving(|mut s| while s.write_all(&[b'x'; 8192]).is_ok() {});
    let got = asked(flood, &question, 10_000);
    assert!(got.as_ref().is_err_and(|e| e.starts_with("no HTTP answer")), "{got:?}");
    // Only behind the question: what comes before it is no answer.
    let flood = serving(|mut s| {
        let _ = s.read(&mut [0; 4096]);
        while s.write_all(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(99)).is_ok() {}
    });
    let got = asked(flood, &question, 600_000);
    assert!(got.as_ref().is_err_and(|e| e.contains("more than 64 KiB before an answer")), "{got:?}");
    let silent = serving(std::mem::forget);
    assert_eq!(asked(silent, &question, 30), Err("no answer within 30ms".to_owned()));
    let got = asked(nowhere(), &question, 10_000);
    assert!(got.as_ref().is_err_and(|e| e.starts_with("cannot connect")), "{got:?}");
}

#[test]
fn tcp_needs_a_process_that_accepts() {
    assert!(asked(serving(drop), &Question::Tcp, 10_000).is_ok());
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let queued = asked(l.local_addr().unwrap(), &Question::Tcp, 50);
    if crate::sys::sock_diag::SockDiag::open().is_ok() {
        assert_eq!(queued, Err("no answer within 50ms".to_owned()), "only the kernel accepted");
    }
    assert!(asked(nowhere(), &Question::Tcp, 10_000).is_err());
}

fn exec(words: &[&str]) -> Question {
    let command = words.iter().map(|w| (*w).to_owned()).collect();
    Question::Exec { command, env: vec![("SIDEBEAT_SERVICE".into(), "127.0.0.1:80".into())] }
}

#[test]
fn a_program_is_judged_by_its_exit_code_and_heard() {
    let table: [(&[&str], Result<&str, &str>); 8] = [
        (&["true"], Ok("exit 0")),
        (&["sh", "-c", "echo; echo '  ready  '; echo more"], Ok("exit 0: ready")),
        (&["sh", "-c", "echo no database >&2; exit 3"], Err("exit 3: no database")),
        (&["sh", "-c", "kill -9 $$"], Err("signal 9")),
        (&["echo", "$HOME; `x` *"], Ok("exit 0: $HOME; `x` *")),
        (&["sh", "-c", "echo $SIDEBEAT_SERVICE"], Ok("exit 0: 127.0.0.1:80")),
        (&["sh", "-c", "printf 'a\\033[31mb'"], Ok("exit 0: a [31mb")),
        (&["/nonexistent/program"], Err("cannot start /nonexistent/program: ")),
    ];
    for (words, wanted) in table {
        let got = asked(nowhere(), &exec(words), 20_000);
        match wanted {
            Ok(text) => assert_eq!(got.as_deref(), Ok(text), "{words:?}"),
            Err(text) => assert!(got.as_ref().is_err_and(|e| e.starts_with(text)), "{words:?}: {got:?}"),
        }
    }
}

#[test]
fn endless_output_is_neither_kept_nor_waited_for() {
    let got = asked(nowhere(), &exec(&["sh", "-c", "yes | head -c 800000; exit 5"]), 60_000);
    let said = got.unwrap_err();
    assert!(said.starts_with("exit 5: y") && said.len() < 300, "{said}");
    let got = asked(nowhere(), &exec(&["yes"]), 600_000);
    let said = got.unwrap_err();
    assert!(said.starts_with("more than 1024 KiB of output: killed: y") && said.len() < 300, "{said}");
}

#[test]
fn a_late_program_is_killed_with_all_it_started_and_reaped() {
    let dir = std::env::temp_dir().join(format!("sidebeat-exec-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("pids");
    let script = format!("sleep 1000 & echo $$ $! > {}; wait", file.display());
    let got = asked(nowhere(), &exec(&["sh", "-c", &script]), 1500);
    assert_eq!(got, Err("no end within 1s 500ms: killed".to_owned()));
    let pids = std::fs::read_to_string(&file).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 2, "both ran");
    assert!(!std::path::Path::new(&format!("/proc/{}", pids[0])).exists(), "reaped");
    // Its child is a zombie until whoever adopts it looks, or is gone already; a signal needs a moment to arrive.
    let left = || std::fs::read_to_string(format!("/proc/{}/stat", pids[1])).unwrap_or_default();
    let dead = |l: &str| l.is_empty() || l.contains(") Z ") || l.contains(") X ");
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        for _ in 0..1000 {
            if dead(&left()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(dead(&left()), "{}", left());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn one_that_leaves_a_child_with_the_pipe_is_not_waited_for() {
    let got = asked(nowhere(), &exec(&["sh", "-c", "sleep 3 & echo started"]), 20_000);
    assert_eq!(got.as_deref(), Ok("exit 0: started"));
}
