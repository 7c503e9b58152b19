//! Pure: no IO, no clock. What may be announced as a pause, however it is asked for: by HTTP or by the hook's socket.

use std::time::Duration;

use super::MAX_MAINTENANCE;

/// Longest reason, bytes: it travels in a frame.
pub(super) const MAX_REASON: usize = 128;

/// A line of the hook's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// `pause 500ms full gc`: the service will be silent for at most that long.
    Pause(Duration, String),
    /// `resume`: the pause is over, earlier than announced.
    Resume,
}

/// Reads a pause's length.
///
/// # Errors
/// What is wrong, to be put behind the name of the thing.
pub(super) fn duration(wanted: &str) -> Result<Duration, String> {
    let pause = humantime::parse_duration(wanted).map_err(|e| {
        format!("is a duration such as 500ms, not `{}`: {}", plain(wanted), plain(&e.to_string()))
    })?;
    if pause.is_zero() || pause > MAX_MAINTENANCE {
        let most = humantime::format_duration(MAX_MAINTENANCE);
        return Err(format!("is more than 0 and at most {most}, not {}", plain(wanted)));
    }
    Ok(pause)
}

/// Checks a reason.
///
/// # Errors
/// As [`duration`].
pub(super) fn reason(text: &str) -> Result<(), String> {
    if text.len() > MAX_REASON || text.chars().any(char::is_control) {
        return Err(format!("is at most {MAX_REASON} bytes without control characters"));
    }
    Ok(())
}

/// Reads a line of the hook's socket, without its end.
///
/// # Errors
/// What is wrong and what is allowed.
pub(super) fn order(line: &[u8]) -> Result<Order, String> {
    const USAGE: &str = "write `pause DURATION [REASON]`, such as `pause 500ms full gc`, or `resume`";
    let line = std::str::from_utf8(line).map_err(|_| format!("the line is not UTF-8; {USAGE}"))?.trim();
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        "pause" => {
            let (wanted, why) = rest.split_once(' ').unwrap_or((rest, ""));
            if wanted.is_empty() {
                return Err(format!("no duration; {USAGE}"));
            }
            let pause = duration(wanted).map_err(|e| format!("the duration {e}"))?;
            let why = why.trim();
            reason(why).map_err(|e| format!("the reason {e}"))?;
            Ok(Order::Pause(pause, why.to_owned()))
        }
        "resume" if rest.is_empty() => Ok(Order::Resume),
        "resume" => Err(format!("`resume` stands alone; {USAGE}")),
        "" => Err(format!("an empty line; {USAGE}")),
        _ => Err(format!("`{}` is not known; {USAGE}", plain(word))),
    }
}

/// The begin of a foreign text, on one line.
fn plain(text: &str) -> String {
    text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    #[test]
    fn lines_are_read_as_written() {
        let pause = |ms, why: &str| Ok(Order::Pause(Duration::from_millis(ms), why.to_owned()));
        let table: [(&[u8], Result<Order, &str>); 14] = [
            (b"pause 500ms", pause(500, "")),
            (b"pause 500ms full gc", pause(500, "full gc")),
            (b"  pause   2s   nightly backup \r", pause(2000, "nightly backup")),
            (b"pause 30s x", pause(30_000, "x")),
            (b"resume", Ok(Order::Resume)),
            (b"resume now", Err("`resume` stands alone")),
            (b"pause", Err("no duration")),
            (b"pause soon", Err("the duration is a duration such as 500ms, not `soon`")),
            (b"pause 0s", Err("the duration is more than 0 and at most 30s")),
            (b"pause 31s", Err("the duration is more than 0 and at most 30s")),
            (b"pause 1s \x07", Err("the reason is at most 128 bytes")),
            (b"", Err("an empty line")),
            (b"GET / HTTP/1.1", Err("`GET` is not known")),
            (b"pause 1s \xff", Err("the line is not UTF-8")),
        ];
        for (line, wanted) in table {
            match (order(line), wanted) {
                (Ok(got), Ok(wanted)) => assert_eq!(got, wanted),
                (Err(got), Err(wanted)) => assert!(got.starts_with(wanted), "{got}, not {wanted}"),
                (got, wanted) => panic!("{:?}: {got:?}, not {wanted:?}", String::from_utf8_lossy(line)),
            }
        }
        assert!(order(format!("pause 1s {}", "x".repeat(MAX_REASON + 1)).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused_on_one_printable_line(line in prop::collection::vec(any::<u8>(), 0..600)) {
            match order(&line) {
                Ok(Order::Pause(d, why)) => {
                    prop_assert!(!d.is_zero() && d <= MAX_MAINTENANCE && why.len() <= MAX_REASON);
                }
                Ok(Order::Resume) => {}
                Err(why) => prop_assert!(!why.contains('\n'), "{why}"),
            }
        }
    }
}
