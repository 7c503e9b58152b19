//! Durations and sizes as text, and the nearest word to a slip.
//!
//! Pure: no IO, no clock.

use std::time::Duration;

use super::kind::MAX_NAME;

/// A duration as the configuration writes it.
pub(super) fn duration_text(d: Duration) -> String {
    humantime::format_duration(d).to_string()
}

/// A size with the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1_u64 << shift));
    fits.map_or_else(|| format!("{bytes}B"), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Bytes; `Some(None)`: more than can be counted.
pub(super) fn parse_size(text: &str) -> Option<Option<u64>> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    // Digits that are no number are too many of them.
    (!number.is_empty()).then(|| number.parse::<u64>().ok()?.checked_mul(factor))
}

/// The word nearest to what was typed, if it is near enough to be a slip.
pub(super) fn nearest(typed: &str, words: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    if typed.len() > MAX_NAME {
        return None;
    }
    let typed = typed.to_ascii_lowercase().replace('-', "_");
    let ranked = words.map(|w| (distance(&typed, &w.replace('-', "_")), w));
    let (far, word) = ranked.min_by_key(|(d, _)| *d)?;
    (far <= (word.len() / 3).max(1)).then_some(word)
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip_and_refuse_nonsense() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, 3 << 30, 4_000_000] {
            assert_eq!(parse_size(&size_text(bytes)), Some(Some(bytes)));
        }
        assert_eq!(parse_size("4 MiB"), Some(Some(4 << 20)));
        for large in ["99999999999GiB", "99999999999999999999"] {
            assert_eq!(parse_size(large), Some(None), "{large}");
        }
        for bad in ["", "MiB", "4XB", "-1", "1.5MiB"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn nearest_is_a_slip_and_not_a_guess() {
        let words = || ["idle", "active", "link_port"].into_iter();
        for (typed, word) in [("idel", "idle"), ("actve", "active"), ("Link-Port", "link_port")] {
            assert_eq!(nearest(typed, words()), Some(word));
        }
        for far in ["", "x", "listen", "löss", &"a".repeat(1000)] {
            assert_eq!(nearest(far, words()), None, "{far}");
        }
    }
}
