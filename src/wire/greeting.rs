//! Pure: no IO, no clock. The first bytes of a link, spoken by the acceptor, so that a foreign server on the link port
//! never receives a byte of ours, and the dialer knows the versions before it says hello.

use super::error::WireError;

/// Highest wire version this program speaks.
pub const VERSION: u16 = 1;

/// Lowest wire version this program speaks.
pub const LOWEST_VERSION: u16 = 1;

/// Bytes of a greeting: magic, highest version, lowest version (`u16`, big endian).
pub const GREETING_LEN: usize = 12;

/// No text protocol begins with a byte that cannot start UTF-8, and the line ends show a path that rewrites text.
const MAGIC: [u8; 8] = [0xb5, b'B', b'E', b'A', b'\r', b'\n', 0x1a, b'\n'];

/// What the acceptor sends before it has heard anything.
pub const fn greeting() -> [u8; GREETING_LEN] {
    greeting_of(VERSION, LOWEST_VERSION)
}

const fn greeting_of(highest: u16, lowest: u16) -> [u8; GREETING_LEN] {
    let [m0, m1, m2, m3, m4, m5, m6, m7] = MAGIC;
    let [h0, h1] = highest.to_be_bytes();
    let [l0, l1] = lowest.to_be_bytes();
    [m0, m1, m2, m3, m4, m5, m6, m7, h0, h1, l0, l1]
}

/// The version to speak with the sender of this greeting: the highest one that both know.
///
/// # Errors
/// [`WireError::BadMagic`] if this is no sidecar, [`WireError::NoCommonVersion`] if it is one of another age.
pub fn parse_greeting(bytes: &[u8; GREETING_LEN]) -> Result<u16, WireError> {
    let [magic @ .., h0, h1, l0, l1] = *bytes;
    if magic != MAGIC {
        return Err(WireError::BadMagic);
    }
    let highest = u16::from_be_bytes([h0, h1]);
    let lowest = u16::from_be_bytes([l0, l1]);
    let common = highest.min(VERSION);
    if common < lowest.max(LOWEST_VERSION) {
        return Err(WireError::NoCommonVersion { highest, lowest });
    }
    Ok(common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_greeting_is_understood() {
        assert_eq!(parse_greeting(&greeting()), Ok(VERSION));
    }

    #[test]
    fn magic_cannot_be_text() {
        assert_eq!(MAGIC[0] >> 6, 0b10, "a byte that continues a character cannot begin a text");
        assert!(MAGIC.ends_with(b"\r\n\x1a\n"));
        assert_eq!(parse_greeting(b"HTTP/1.1 200"), Err(WireError::BadMagic));
        let mut rewritten = greeting();
        rewritten[4] = b'\n';
        assert_eq!(parse_greeting(&rewritten), Err(WireError::BadMagic));
    }

    #[test]
    fn the_highest_common_version_wins() {
        assert_eq!(parse_greeting(&greeting_of(9, 1)), Ok(VERSION));
        for (highest, lowest) in [(9, 2), (0, 0), (1, 2), (u16::MAX, u16::MAX)] {
            let error = WireError::NoCommonVersion { highest, lowest };
            assert_eq!(parse_greeting(&greeting_of(highest, lowest)), Err(error));
        }
    }
}
