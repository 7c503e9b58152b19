//! Pure: no IO, no clock. When one direction of a stream is bulk, so that splice is worth its extra system calls.

/// Bytes in large pieces that make a direction bulk.
const RUN: usize = 256 * 1024;
/// A piece of at least this size is large.
const LARGE: usize = 16 * 1024;
/// A piece below this size is small: copying it is cheaper than splice.
const SMALL: usize = 4 * 1024;
/// So many small pieces in a row and the direction is no longer bulk.
const SMALL_RUN: u8 = 3;

/// Counts the pieces of one direction.
#[derive(Debug, Default)]
pub struct Bulk {
    run: usize,
    small: u8,
    on: bool,
}

impl Bulk {
    /// True while the direction is bulk.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// A piece of `n` bytes passed, of at most `most`: a small one tells nothing if no more was asked for.
    pub fn piece(&mut self, n: usize, most: usize) {
        if n >= LARGE {
            self.small = 0;
            self.run = self.run.saturating_add(n);
            self.on |= self.run >= RUN;
        } else if n < SMALL && n < most {
            self.small = self.small.saturating_add(1);
            if !self.on || self.small >= SMALL_RUN {
                *self = Bulk::default();
            }
        }
    }

    /// Splice is not possible now: begins to count anew.
    pub fn refuse(&mut self) {
        *self = Bulk::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 256 * 1024;

    #[test]
    fn on_after_256_kib_in_large_pieces() {
        let mut b = Bulk::default();
        for _ in 0..3 {
            b.piece(64 * 1024, MOST);
            assert!(!b.is_on());
        }
        b.piece(64 * 1024, MOST);
        assert!(b.is_on());
    }

    #[test]
    fn a_small_piece_begins_the_count_anew() {
        let mut b = Bulk::default();
        for _ in 0..100 {
            b.piece(128 * 1024, MOST);
            b.piece(100, MOST);
        }
        assert!(!b.is_on());
        for _ in 0..10_000 {
            b.piece(1000, MOST);
        }
        assert!(!b.is_on(), "many small ones are not bulk");
    }

    #[test]
    fn off_after_small_pieces_in_a_row_only() {
        let mut b = Bulk::default();
        b.piece(RUN, MOST);
        for _ in 0..10 {
            b.piece(10, MOST);
            b.piece(10, MOST);
            b.piece(LARGE, MOST);
        }
        assert!(b.is_on(), "the tail of a large write is small");
        for _ in 0..SMALL_RUN {
            b.piece(10, MOST);
        }
        assert!(!b.is_on());
        b.piece(LARGE, MOST);
        assert!(!b.is_on(), "the count began anew");
    }

    #[test]
    fn pieces_between_change_nothing() {
        let mut b = Bulk::default();
        b.piece(RUN, MOST);
        for _ in 0..100 {
            b.piece(SMALL, MOST);
        }
        for n in 0..100 {
            b.piece(n, n);
        }
        assert!(b.is_on());
        b.refuse();
        assert!(!b.is_on());
    }
}
