//! The program's own pages stay in memory. Where the system reclaims pages of files (a full container, a host that trims
//! what was not used for a minute) a piece of code that runs seldom is read from the disk first: a beat, a challenge or a
//! verdict would wait for it.
#![expect(unsafe_code, reason = "mlock2 takes an address")]

use std::fs;
use std::io;

/// A part of the program or of a library: what may be executed, and its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    from: usize,
    to: usize,
}

/// Locks code and constants of this process, each page from its first use on; gives how many bytes that may become, 6 MiB. Pages
/// that are never used, a third of them in `run`, cost nothing. What is written stays with
/// the system's rules: it is no file's page, and goes nowhere without swap.
///
/// # Errors
/// The limit of locked memory (`ulimit -l`) is lower, the kernel is older than 4.4, or /proc cannot be read. Nothing else is
/// affected.
pub fn keep_code() -> io::Result<usize> {
    let mut locked = 0;
    for part in parts(&fs::read_to_string("/proc/self/maps")?) {
        let len = part.to - part.from;
        // SAFETY: mlock2 reads and writes nothing through the address; a range that is no longer mapped is an error.
        if unsafe { libc::syscall(libc::SYS_mlock2, part.from, len, libc::MLOCK_ONFAULT) } != 0 {
            return Err(io::Error::last_os_error());
        }
        locked += len;
    }
    Ok(locked)
}

/// Mappings of files that are not written to.
fn parts(maps: &str) -> Vec<Part> {
    maps.lines().filter_map(part).collect()
}

fn part(line: &str) -> Option<Part> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let path = words.nth(3)?;
    let (from, to) = range.split_once('-')?;
    let hex = |text| usize::from_str_radix(text, 16).ok();
    let part = Part { from: hex(from)?, to: hex(to)? };
    let wanted =
        path.starts_with('/') && rights.starts_with('r') && !rights.contains('w') && part.to > part.from;
    wanted.then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_constants_of_files_and_nothing_else() {
        let maps = "\
55e7aa12d000-55e7aa43f000 r-xp 000ba000 fe:00 10078624                   /usr/bin/sidebeat
55e7aa454000-55e7aa456000 rw-p 003df000 fe:00 10078624                   /usr/bin/sidebeat
55e7aa456000-55e7aa4b9000 rw-p 00000000 00:00 0                          [heap]
7fa7e88b8000-7fa7e88bc000 r--p 001cf000 fe:00 326279                     /usr/lib/libc.so.6
7fa7e88be000-7fa7e88bf000 ---p 00000000 fe:00 326279                     /usr/lib/libc.so.6
7ffd1f7e6000-7ffd1f7e8000 r-xp 00000000 00:00 0                          [vdso]
nonsense
";
        let got = parts(maps);
        let want = [(0x55e7_aa12_d000, 0x55e7_aa43_f000), (0x7fa7_e88b_8000, 0x7fa7_e88b_c000)];
        assert_eq!(got, want.map(|(from, to)| Part { from, to }));
    }

    #[test]
    fn own_code_is_kept_or_the_limit_is_told() {
        match keep_code() {
            Ok(bytes) => assert!(bytes > 100_000, "{bytes}"),
            Err(e) => {
                assert!(matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN)), "{e}")
            }
        }
    }
}
