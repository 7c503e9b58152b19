//! Replays the sample configurations, and keeps the generated files equal to the schema.
//!
//! `BLESS=1 cargo test --test config` writes the generated files and golden error texts anew.

#![expect(clippy::unwrap_used, reason = "a test may panic; clippy only knows #[test] functions")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use sidebeat::config::{self, Config, Decay, DetectorKind, Errors, Place, Problem, ShadowLaw, schema};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The samples of a folder, by name; asserts that there are at least `least`.
fn samples(folder: &str, least: usize) -> Vec<(String, PathBuf, String)> {
    let folder = root().join("config").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    paths.sort();
    assert!(paths.len() >= least, "only {} samples in {}", paths.len(), folder.display());
    let named = |p: PathBuf| {
        let name = p.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&p).unwrap();
        (name, p, text)
    };
    paths.into_iter().map(named).collect()
}

fn parse(text: &str) -> Result<Config, Errors> {
    parse_env(text, &[])
}

fn parse_env(text: &str, env: &[(&str, &str)]) -> Result<Config, Errors> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    config::parse(text, "sidebeat.toml", env).map(|(config, _)| config)
}

fn equals_or_bless(path: &Path, wanted: &str) {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == wanted, "{} differs from the code: BLESS=1 writes it anew", path.display());
}

const INBOUND: &str =
    "[[inbound]]\nname = \"a\"\nlink_listen = \"127.0.0.1:0\"\nservice = \"127.0.0.1:8080\"\n";
const OUTBOUND: &str =
    "[[outbound]]\nname = \"my-shop.eu\"\nlisten = \"127.0.0.1:0\"\nendpoints = [\"10.1.0.4:8080\"]\n";

#[test]
fn valid_samples_are_valid_without_unexpected_warnings() {
    for (name, path, text) in samples("valid", 8) {
        let (_, warnings) =
            config::load(&path, std::iter::empty()).unwrap_or_else(|e| panic!("{name}:\n{e}"));
        let found: Vec<_> = warnings.iter().map(|w| w.key.as_str()).collect();
        let wanted: Vec<_> = text.lines().filter_map(|l| l.strip_prefix("# warns: ")).collect();
        assert_eq!(found, wanted, "{name}");
    }
}

/// `# expect: line:column key: what` lines name all errors of a sample; `file` stands for no place.
#[test]
fn the_samples_for_containers_are_valid() {
    for (name, path, _) in samples("../docker", 2) {
        let (_, warnings) =
            config::load(&path, std::iter::empty()).unwrap_or_else(|e| panic!("{name}:\n{e}"));
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
    }
}

#[test]
fn invalid_samples_give_exactly_the_expected_errors() {
    for (name, _, text) in samples("invalid", 25) {
        let errors = config::parse(&text, &name, std::iter::empty()).expect_err(&name);
        let wanted: Vec<_> = text.lines().filter_map(|l| l.strip_prefix("# expect: ")).collect();
        let found: Vec<_> = errors.0.iter().map(summary).collect();
        assert!(!wanted.is_empty(), "{name} expects nothing; found {found:#?}");
        assert_eq!(found, wanted, "{name}:\n{errors}");
    }
}

fn summary(p: &Problem) -> String {
    let place = match &p.place {
        Place::Text { line, column, .. } => format!("{line}:{column}"),
        Place::Env(name) => name.clone(),
        Place::File => "file".to_owned(),
    };
    let key = if p.key.is_empty() { String::new() } else { format!("{}: ", p.key) };
    format!("{place} {key}{}", p.what)
}

#[test]
fn error_texts_are_golden() {
    let mut all = String::from(
        "The messages of every sample in this folder. BLESS=1 cargo test --test config writes it anew.\n",
    );
    for (name, _, text) in samples("invalid", 25) {
        let errors = config::parse(&text, &name, std::iter::empty()).expect_err(&name);
        all.push_str(&format!("\n=== {name}\n{errors}\n"));
    }
    equals_or_bless(&root().join("config/invalid/messages.txt"), &all);
}

#[test]
fn the_default_file_is_generated() {
    equals_or_bless(&root().join("config/default.toml"), &config::docs::defaults());
}

#[test]
fn the_reference_is_generated() {
    equals_or_bless(&root().join("docs/configuration.md"), &config::docs::markdown());
}

#[test]
fn the_default_file_lacks_only_something_to_do() {
    let errors = parse(&config::docs::defaults()).unwrap_err();
    assert_eq!(errors.0.len(), 1, "{errors}");
    assert!(errors.0[0].what.starts_with("nothing to do"), "{errors}");
    let config = parse(&format!("{}\n{INBOUND}", config::docs::defaults())).unwrap();
    assert_eq!(config, parse(INBOUND).unwrap(), "what the file writes out is the default");
}

#[test]
fn the_samples_in_the_default_file_are_valid() {
    let sample = |l: &str| l.starts_with("#[") || l.as_bytes().get(1).is_some_and(u8::is_ascii_lowercase);
    let uncommented: Vec<_> = config::docs::defaults()
        .lines()
        .map(|l| if l.starts_with('#') && sample(l) { l[1..].to_owned() } else { l.to_owned() })
        .collect();
    let config = parse(&uncommented.join("\n")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((config.inbound.len(), config.outbound.len()), (1, 1));
}

#[test]
fn defaults_are_the_documented_values() {
    let config = parse(&format!("{INBOUND}{OUTBOUND}")).unwrap();
    let ms = Duration::from_millis;
    assert!(!config.node.id.is_empty() && (1..=64).contains(&config.node.workers));
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:7421");
    assert_eq!((config.beat.idle, config.beat.active, config.beat.duty), (ms(100), ms(20), 1));
    assert_eq!((config.detector.tau_min, config.detector.learn_max), (ms(6), ms(500)));
    assert_eq!(config.detector.half_life, ms(600_000));
    let d = &config.detector;
    assert_eq!((d.kind, d.shadows.len(), d.timeout_after), (DetectorKind::Promise, 0, ms(3000)));
    assert_eq!((d.phi.threshold, d.phi.window, d.phi.min_std, d.phi.pause), (8.0, 1000, ms(10), ms(0)));
    assert_eq!((d.chen.alpha, d.chen.window, d.p95.factor, d.p95.window), (ms(50), 1000, 1.8, 30));
    assert_eq!(config.backpressure_threshold, 0.75);
    assert_eq!((config.service.stall_patience, config.service.busy_patience), (ms(1000), ms(2000)));
    assert_eq!((config.probe.kind, config.probe.idle), (config::ProbeKind::Off, ms(1000)));
    assert_eq!((config.probe.path.as_str(), config.probe.status.as_slice()), ("/", &[(200, 399)][..]));
    assert_eq!((config.maintenance.socket, config.maintenance.mode), (None, 0o660));
    assert_eq!((config.limits.stream_window, config.limits.link_queue), (4 << 20, 1 << 20));
    let out = &config.outbound[0];
    assert_eq!((out.remote.as_str(), out.cut_after, out.max_failed), ("my-shop.eu", Some(ms(1000)), 0.5));
    assert_eq!(out.endpoints[0].link.to_string(), "10.1.0.4:7420");
}

#[test]
fn json_shows_every_key_of_the_schema() {
    let json = parse(&format!("{INBOUND}{OUTBOUND}")).unwrap().to_json();
    let mut seen = 0;
    for section in schema::SECTIONS {
        let pointer = format!("/{}{}", section.path.replace('.', "/"), if section.list { "/0" } else { "" });
        for key in section.keys.iter().filter(|k| k.name != "link_port") {
            let found = json.pointer(&format!("{pointer}/{}", key.name));
            assert!(found.is_some(), "{pointer}/{} is missing in {json}", key.name);
            seen += 1;
        }
    }
    assert!(seen > 30);
    assert_eq!(json.pointer("/beat/idle").unwrap(), "100ms");
    assert_eq!(json.pointer("/limits/stream_window").unwrap(), "4MiB");
    assert_eq!(json.pointer("/outbound/0/endpoints/0/link_port").unwrap(), 7420);
}

#[test]
fn environment_overrides_the_file_and_the_defaults() {
    let text = format!("{INBOUND}{OUTBOUND}[beat]\nidle = \"200ms\"\n");
    let config = parse_env(
        &text,
        &[
            ("PATH", "/bin"),
            ("SIDEBEAT_CONFIG", "x"),
            ("SIDEBEAT__BEAT__IDLE", "50ms"),
            ("SIDEBEAT__BEAT__DUTY", "2"),
            ("SIDEBEAT__DETECTOR__PROMISE__TAU_MIN", "4ms"),
            ("SIDEBEAT__DETECTOR__SHADOWS", "phi, huddm"),
            ("SIDEBEAT__DETECTOR__P95__WINDOW", "50"),
            ("SIDEBEAT__NODE__ID", "7"),
            ("SIDEBEAT__LIMITS__MEMORY", "512MiB"),
            ("SIDEBEAT__LIMITS__LINK_QUEUE", "131072"),
            ("SIDEBEAT__OUTBOUND__MY_SHOP_EU__CUT_AFTER", "off"),
            ("SIDEBEAT__OUTBOUND__MY_SHOP_EU__MAX_FAILED", "1"),
            ("SIDEBEAT__OUTBOUND__MY_SHOP_EU__ENDPOINTS", "10.0.0.1:80, [fd00::1]:80"),
            ("SIDEBEAT__INBOUND__A__ALLOW", "[\"10.0.0.0/8\"]"),
            ("SIDEBEAT__PROBE__KIND", "exec"),
            ("SIDEBEAT__PROBE__COMMAND", "[\"pg_isready\", \"-t 1, 2\"]"),
            ("SIDEBEAT__PROBE__STATUS", "200, 204-206"),
            ("SIDEBEAT__MAINTENANCE__MODE", "0600"),
        ],
    )
    .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((config.beat.idle, config.beat.duty), (Duration::from_millis(50), 2));
    assert_eq!(config.detector.tau_min, Duration::from_millis(4));
    let shadows: Vec<_> = config.detector.shadows.iter().map(|s| (s.name.as_str(), s.law)).collect();
    let of = ShadowLaw::Configured;
    assert_eq!(shadows, [("phi", of(DetectorKind::Phi)), ("huddm", of(DetectorKind::Huddm))]);
    assert_eq!(config.detector.p95.window, 50);
    assert_eq!((config.node.id.as_str(), config.limits.memory), ("7", 512 << 20));
    assert_eq!(config.limits.link_queue, 131_072);
    assert_eq!((config.outbound[0].cut_after, config.outbound[0].max_failed), (None, 1.0));
    assert_eq!(config.outbound[0].endpoints[1].link.to_string(), "[fd00::1]:7420");
    assert_eq!(config.inbound[0].allow[0].prefix, 8);
    assert_eq!(config.probe.command, ["pg_isready", "-t 1, 2"]);
    assert_eq!(config.probe.status, [(200, 200), (204, 206)]);
    assert_eq!(config.maintenance.mode, 0o600);
}

#[test]
fn environment_can_give_what_the_file_lacks() {
    let text = "[[outbound]]\nname = \"x\"\nlisten = \"127.0.0.1:0\"\n";
    let config = parse_env(text, &[("SIDEBEAT__OUTBOUND__X__ENDPOINTS", "10.0.0.1:80")]).unwrap();
    assert_eq!(config.outbound[0].endpoints.len(), 1);
}

#[test]
fn every_bad_variable_is_an_error_that_names_it() {
    let text = format!(
        "{INBOUND}{OUTBOUND}[[outbound]]\nname = \"my_shop.eu\"\nlisten = \"127.0.0.1:0\"\nendpoints = [\"10.0.0.1:80\"]\n"
    );
    let cases = [
        ("SIDEBEAT__", "names no key", ""),
        ("SIDEBEAT__BEAT", "names no key", ""),
        ("SIDEBEAT__BEET__IDLE", "unknown section `beet`", "[beat]"),
        ("SIDEBEAT__BEAT__IDEL", "unknown key `idel` of [beat]", "`idle`"),
        ("SIDEBEAT__BEAT__IDLE", "not a duration", "units"),
        ("SIDEBEAT__BEAT__DUTY", "wrong type", ""),
        ("SIDEBEAT__OUTBOUND__LISTEN", "names no element of the list", ""),
        ("SIDEBEAT__OUTBOUND__NONE__LISTEN", "no [[outbound]] has this name", ""),
        ("SIDEBEAT__INBOUND__A__NAME", "a name cannot be changed", ""),
        ("SIDEBEAT__INBOUND__A__ALLOW", "not a network", ""),
        ("SIDEBEAT__OUTBOUND__MY_SHOP_EU__REMOTE", "fits more than one [[outbound]]", "rename"),
        ("SIDEBEAT__DETECTOR__PROMISE", "unknown key `promise`", ""),
        ("SIDEBEAT__PROBE__KIND", "\"nonsense\" is not known", ""),
        ("SIDEBEAT__PROBE__PATH", "does not begin with a slash", ""),
        ("SIDEBEAT__PROBE__INBOUNDS", "there is no [[inbound]] \"nonsense\"", ""),
        ("SIDEBEAT__MAINTENANCE__SOCKET", "is not absolute", ""),
    ];
    for (var, what, hint) in cases {
        let errors = parse_env(&text, &[(var, "nonsense")]).expect_err(var);
        assert_eq!(errors.0.len(), 1, "{var}: {errors}");
        let problem = &errors.0[0];
        assert_eq!(problem.place, Place::Env(var.to_owned()));
        assert!(problem.what.contains(what), "{var}: {errors}");
        assert!(problem.hint.as_deref().unwrap_or("").contains(hint), "{var}: {errors}");
    }
    let twice = [("SIDEBEAT__BEAT__IDLE", "50ms"), ("SIDEBEAT__beat__idle", "60ms")];
    assert!(parse_env(INBOUND, &twice).unwrap_err().to_string().contains("given twice"));
}

#[test]
fn relations_hold_for_overrides_too() {
    let errors = parse_env(INBOUND, &[("SIDEBEAT__BEAT__IDLE", "10ms")]).unwrap_err();
    let text = errors.to_string();
    assert!(text.contains("SIDEBEAT__BEAT__IDLE: beat.idle: idle (10ms) is below active (20ms)"), "{text}");
}

#[test]
fn a_timeout_that_judges_must_outlast_idle_beats() {
    let warned = |detector: &str| {
        let text = format!("{INBOUND}[beat]\nidle = \"3s\"\n[detector]\n{detector}\n");
        let (_, warnings) = config::parse(&text, "f", std::iter::empty()).unwrap_or_else(|e| panic!("{e}"));
        warnings.iter().map(summary).collect::<Vec<_>>()
    };
    for judges in ["kind = \"timeout\"", "shadows = [\"phi\", \"timeout\"]"] {
        let found = warned(judges);
        assert_eq!(found.len(), 1, "{judges}: {found:?}");
        assert!(found[0].starts_with("6:8 beat.idle: an idle link beats each 3s"), "{found:?}");
    }
    assert!(warned("kind = \"timeout\"\n[detector.timeout]\nafter = \"4s\"").is_empty());
    assert!(warned("kind = \"phi\"").is_empty());
}

/// What a health check asks: the environment, else the file, else the default, whatever else is wrong with them.
#[test]
fn the_admin_address_is_found_where_run_would_find_it() {
    let file = std::env::temp_dir().join(format!("sidebeat-listen-{}.toml", std::process::id()));
    let found = |text: &str, env: Option<&str>| {
        std::fs::write(&file, text).unwrap();
        let env = env.map(|v| ("SIDEBEAT__ADMIN__LISTEN".to_owned(), v.to_owned()));
        config::admin_listen(&file, env.into_iter()).to_string()
    };
    let written = "[admin]\nlisten = \"127.0.0.1:7431\"\n";
    assert_eq!(found(written, None), "127.0.0.1:7431");
    assert_eq!(found(written, Some("[::1]:7432")), "[::1]:7432");
    assert_eq!(found(written, Some("nowhere")), "127.0.0.1:7431");
    assert_eq!(
        found(&format!("{written}[beat]\nidel = \"1s\"\n[trace]\npath = 7\n"), None),
        "127.0.0.1:7431"
    );
    for text in
        ["", "[admin]\nlisten = 7431\n", "[admin]\nlisten = \"host:1\"\n", "admin = 1\n", "\0\n[[[", INBOUND]
    {
        assert_eq!(found(text, None), "127.0.0.1:7421", "{text:?}");
        assert_eq!(found(text, Some("127.0.0.1:7433")), "127.0.0.1:7433", "{text:?}");
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(config::admin_listen(&file, std::iter::empty()).to_string(), "127.0.0.1:7421");
    assert_eq!(config::admin_listen(Path::new("/"), std::iter::empty()).to_string(), "127.0.0.1:7421");
    let other = [
        ("SIDEBEAT__NODE__ID".to_owned(), "x".to_owned()),
        ("SIDEBEAT__NO__SUCH".to_owned(), "1".to_owned()),
    ];
    assert_eq!(config::admin_listen(&file, other.into_iter()).to_string(), "127.0.0.1:7421");
}

#[test]
fn shadows_with_parameters_of_their_own_are_read_and_checked() {
    let with = |list: &str| {
        let text = format!("{INBOUND}[detector]\nshadows = [{list}]\n");
        config::parse(&text, "f", std::iter::empty())
    };
    let ms = Duration::from_millis;
    let (config, warnings) =
        with("\"huddm-tick\", \"huddm-miss\", \"timeout-27ms\", \"timeout-1m30s\"").unwrap();
    let laws: Vec<_> = config.detector.shadows.iter().map(|s| s.law).collect();
    let wanted = [
        ShadowLaw::Huddm(Decay::Tick),
        ShadowLaw::Huddm(Decay::Miss),
        ShadowLaw::Timeout(ms(27)),
        ShadowLaw::Timeout(ms(90_000)),
    ];
    assert_eq!(laws, wanted);
    let texts: Vec<_> = warnings.iter().map(summary).collect();
    assert!(texts.len() == 1 && texts[0].contains("\"timeout-27ms\" fails between two beats"), "{texts:?}");
    for (bad, what) in [
        ("\"timeout-\"", "holds no time"),
        ("\"timeout-4ms\"", "holds no time"),
        ("\"timeout-2h\"", "holds no time"),
        ("\"timeout-1m 30s\"", "holds no time"),
        ("\"timeout-27\"", "holds no time"),
        ("\"huddm-tock\"", "did you mean \"huddm-tick\""),
        ("\"timeout-27ms\", \"timeout-27ms\"", "listed twice"),
        (&(10..27).map(|n| format!("\"timeout-{n}ms\"")).collect::<Vec<_>>().join(","), "has 17 shadows"),
    ] {
        let errors = with(bad).unwrap_err().to_string();
        assert!(errors.contains(what), "{bad}: {errors}");
    }
    let kind = format!("{INBOUND}[detector]\nkind = \"huddm-tick\"\n");
    assert!(parse(&kind).is_err(), "the one that acts is told by its table");
}

#[test]
fn a_timeout_in_steps_is_checked_as_a_whole() {
    let warned = |keys: &str| {
        let text = format!(
            "{INBOUND}[beat]\nidle = \"1s\"\n[detector]\nkind = \"timeout\"\n[detector.timeout]\n{keys}\n"
        );
        let (config, warnings) =
            config::parse(&text, "f", std::iter::empty()).unwrap_or_else(|e| panic!("{e}"));
        (config.detector.steps, warnings.iter().map(summary).collect::<Vec<_>>())
    };
    let (steps, warnings) = warned("interval = \"300ms\"\nmisses = 2\nbuffer = \"100ms\"");
    let ms = Duration::from_millis;
    assert_eq!((steps.interval, steps.misses, steps.buffer), (Some(ms(300)), 2, Some(ms(100))));
    assert!(warnings.len() == 1 && warnings[0].contains("time-out is 700ms"), "{warnings:?}");
    let (steps, warnings) = warned("interval = \"1s\"");
    assert_eq!((steps.misses, steps.buffer, warnings.len()), (3, None, 0), "{warnings:?}");
    let (_, warnings) = warned("buffer = \"100ms\"");
    assert!(warnings.len() == 1 && warnings[0].contains("does nothing without"), "{warnings:?}");
}

#[test]
fn unreadable_files_say_why() {
    let dir = std::env::temp_dir().join(format!("sidebeat-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let huge = file("huge.toml", "# padding\n".repeat(110_000).as_bytes());
    let cases = [
        (dir.join("none.toml"), "cannot be read: No such file"),
        (dir.clone(), "is a directory"),
        (file("latin1.toml", b"[node]\nid = \"caf\xe9\"\n"), "is not UTF-8 text (first bad byte in line 2)"),
        (huge, "is larger than 1 MiB"),
        (file("empty.toml", b""), "nothing to do"),
        (file("nul.toml", b"\0\0\0"), "not TOML"),
    ];
    for (path, what) in cases {
        let errors = config::load(&path, std::iter::empty()).expect_err(what).to_string();
        assert!(errors.contains(what), "{}: {errors}", path.display());
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn byte_order_mark_and_crlf_are_fine() {
    let text = format!("\u{feff}{}", INBOUND.replace('\n', "\r\n"));
    assert_eq!(parse(&text).unwrap_or_else(|e| panic!("{e}")), parse(INBOUND).unwrap());
}

#[test]
fn garbage_gives_errors_and_never_panics() {
    let valid = std::fs::read_to_string(root().join("config/valid/full.toml")).unwrap();
    let mut tried = 0;
    for (start, c) in valid.char_indices().step_by(3) {
        let end = start + c.len_utf8();
        for with in ["", "\"", "[", "=", "\n", "é", "\u{1b}", "{ a = 1 }"] {
            let text = format!("{}{with}{}", &valid[..start], &valid[end..]);
            if let Err(errors) = parse(&text) {
                assert!(!errors.0.is_empty() && !errors.to_string().contains('\u{1b}'), "{text}");
            }
            tried += 1;
        }
        let _ = parse(&valid[..start]);
    }
    assert!(tried > 1000);
}

#[test]
fn many_problems_are_all_found_in_order() {
    let text = "nodes = 1\n[beat]\nidel = \"1s\"\nactive = 20\n[[inbound]]\nname = \"a b\"\n[log]\nlevel = \"inof\"\n";
    let errors = parse(text).unwrap_err();
    let keys: Vec<_> = errors.0.iter().map(|p| p.key.as_str()).collect();
    let wanted = [
        "nodes",
        "beat.idel",
        "beat.active",
        "inbound[0].link_listen",
        "inbound[0].service",
        "inbound[0].name",
        "log.level",
    ];
    assert_eq!(keys, wanted, "{errors}");
}

#[test]
fn warnings_name_the_place() {
    let text = INBOUND.replace("127.0.0.1:0", "0.0.0.0:0") + "insecure = true\nprotocol = \"http\"\n";
    let (config, warnings) = config::parse(&text, "f", std::iter::empty()).unwrap();
    assert_eq!(config.inbound[0].protocol, config::Protocol::Http);
    let texts: Vec<_> = warnings.iter().map(summary).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].starts_with("5:12 inbound.a.insecure: anyone"), "{texts:?}");
    assert!(texts[1].starts_with("6:12 inbound.a.protocol: HTTP mode is not built yet"), "{texts:?}");
}

/// Every pair of them was compared: 10 000 took tens of seconds.
#[test]
fn ten_thousand_outbounds_are_checked_each_against_all_at_once() {
    use std::fmt::Write as _;
    let mut text = String::new();
    for n in 0..10_000u32 {
        let (ip, port) = (n % 250, 10_000 + n / 250);
        write!(
            text,
            "[[outbound]]\nname=\"o{n}\"\nlisten=\"127.0.0.{ip}:{port}\"\nendpoints=[\"10.0.0.1:80\"]\n"
        )
        .unwrap();
    }
    assert_eq!(parse(&text).unwrap().outbound.len(), 10_000);
    text.push_str("[[outbound]]\nname=\"o17\"\nlisten=\"0.0.0.0:10003\"\nendpoints=[\"10.0.0.1:80\"]\n");
    let errors = parse(&text).unwrap_err().to_string();
    assert!(errors.contains("\"o17\" is used twice, first in line 70"), "{errors}");
    assert!(errors.contains("overlaps outbound.o750.listen (127.0.0.0:10003)"), "{errors}");
}

#[test]
fn what_is_too_large_is_called_so() {
    for (line, what) in [
        ("[beat]\nidle = \"99999999999999999999s\"", "beat.idle: too large"),
        ("[beat]\nidle = \"999999999999999999y\"", "beat.idle: too large"),
        ("[limits]\nmemory = \"99999999999TiB\"", "limits.memory: too large"),
        ("[beat]\nidle = \"99999999999999999999\"", "beat.idle: a duration without a unit"),
    ] {
        let errors = parse(&format!("{INBOUND}{line}\n")).unwrap_err().to_string();
        assert!(errors.contains(what), "{line}: {errors}");
    }
}
