//! Pure: no IO, no clock. Numbers, times and texts of a trace, small where they are usual.

use std::time::Duration;

use super::FormatError;
use crate::stamp::nanos;

/// Longest time a trace can tell; longer ones are written as this.
pub const SPAN_MAX: Duration = Duration::from_secs(400 * 86_400);

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// Seven bits a byte, low ones first; the top bit says that more follow.
pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A signed difference: small ones of either sign are short.
pub(super) fn put_signed(out: &mut Vec<u8>, n: i64) {
    put(out, ((n << 1) ^ (n >> 63)) as u64);
}

/// Whole milliseconds, microseconds or nanoseconds, whichever is exact, with the unit in the low two bits.
pub(super) fn put_span(out: &mut Vec<u8>, d: Duration) {
    let ns = nanos(d.min(SPAN_MAX));
    let (n, unit) = match ns {
        _ if ns.is_multiple_of(MS) => (ns / MS, 2),
        _ if ns.is_multiple_of(US) => (ns / US, 1),
        _ => (ns, 0),
    };
    put(out, n << 2 | unit);
}

/// At most 255 bytes, cut at a character.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let len = text.floor_char_boundary(255);
    out.push(len as u8);
    out.extend_from_slice(&text.as_bytes()[..len]);
}

/// What is left of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, FormatError> {
        let (first, rest) = self.0.split_first().ok_or(FormatError::Corrupt("ends within a record"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u64, FormatError> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            n |= part << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(FormatError::Corrupt("a number of more than 64 bits"))
    }

    pub(super) fn signed(&mut self) -> Result<i64, FormatError> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    pub(super) fn span(&mut self) -> Result<Duration, FormatError> {
        let n = self.number()?;
        let unit = match n & 3 {
            0 => 1,
            1 => US,
            2 => MS,
            _ => return Err(FormatError::Corrupt("an unknown unit of time")),
        };
        let d = (n >> 2).checked_mul(unit).map(Duration::from_nanos);
        d.filter(|d| *d <= SPAN_MAX).ok_or(FormatError::Corrupt("a time of more than 400 days"))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, FormatError> {
        let len = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(len).ok_or(FormatError::Corrupt("ends within a text"))?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| FormatError::Corrupt("a text that is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_times_are_short() {
        for (ms, len) in [(20, 1), (31, 1), (100, 2), (1500, 2), (10_000, 3)] {
            let mut out = Vec::new();
            put_span(&mut out, Duration::from_millis(ms));
            assert_eq!(out.len(), len, "{ms} ms");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bad in [&[][..], &[0x80], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert!(Rest(bad).number().is_err(), "{bad:?}");
        }
        assert_eq!(
            Rest(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).number().ok(),
            Some(u64::MAX)
        );
        assert!(Rest(&[3]).span().is_err(), "unit");
        let mut years = Vec::new();
        put(&mut years, (86_400_000 * 500) << 2 | 2);
        assert!(Rest(&years).span().is_err());
        assert!(Rest(&[4, b'a']).text().is_err());
        assert!(Rest(&[2, 0xc3, 0x28]).text().is_err());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut out = Vec::new();
        put_text(&mut out, &"é".repeat(200));
        assert_eq!(Rest(&out).text().unwrap(), "é".repeat(127));
    }

    proptest! {
        #[test]
        fn numbers_and_times_come_back(n: u64, i: i64, ns in 0..SPAN_MAX.as_nanos() as u64, unit in 0..3u32) {
            let unit = 1000u64.pow(unit);
            let d = Duration::from_nanos(ns / unit * unit);
            let mut out = Vec::new();
            put(&mut out, n);
            put_signed(&mut out, i);
            put_span(&mut out, d);
            let mut rest = Rest(&out);
            prop_assert_eq!(rest.number().unwrap(), n);
            prop_assert_eq!(rest.signed().unwrap(), i);
            prop_assert_eq!(rest.span().unwrap(), d);
            prop_assert!(rest.0.is_empty());
        }
    }
}
