//! The keyboard of the live view: raw mode, and what each key does.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::faults::Kind;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A fault on the chosen target.
    Fault(Kind),
    /// Another target, from 0.
    Target(usize),
    /// The end.
    Quit,
}

/// Keys of the faults, in the order of the help line.
pub const KEYS: [(u8, Kind, &str); 16] = [
    (b'k', Kind::Kill, "kill"),
    (b'h', Kind::Hang, "hang"),
    (b'p', Kind::Pause, "pause"),
    (b'n', Kind::Notice, "notice"),
    (b'r', Kind::Restart, "restart"),
    (b'c', Kind::Cut, "cut"),
    (b'i', Kind::CutIn, "cut-in"),
    (b'u', Kind::CutOut, "cut-out"),
    (b'l', Kind::CutLink, "cut one link"),
    (b'y', Kind::Delay, "delay the path"),
    (b's', Kind::KillSidecar, "kill sidecar"),
    (b'f', Kind::HangSidecar, "freeze sidecar"),
    (b'o', Kind::HangObserver, "stop observer"),
    (b'b', Kind::Saturate, "back up (slow reader)"),
    (b'd', Kind::Deadlock, "dead-lock"),
    (b'x', Kind::Spin, "burn CPU"),
];

/// Meaning of a byte from the terminal.
pub fn action(byte: u8) -> Option<Action> {
    match byte.to_ascii_lowercase() {
        b'q' | 0x03 | 0x04 => Some(Action::Quit),
        n @ b'1'..=b'9' => Some(Action::Target(usize::from(n - b'1'))),
        key => KEYS.iter().find(|(k, _, _)| *k == key).map(|(_, kind, _)| Action::Fault(*kind)),
    }
}

static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal in raw mode on its second screen; restored when dropped and on a panic.
#[derive(Debug)]
pub struct Screen(());

impl Screen {
    /// Takes the terminal.
    pub fn open() -> io::Result<Screen> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        io::stdout().write_all(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Screen(()))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = io::stdout().write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Keys as they are pressed. The reading thread ends with the program or with its input.
pub fn listen() -> io::Result<mpsc::UnboundedReceiver<Action>> {
    let (tx, rx) = mpsc::unbounded_channel();
    std::thread::Builder::new().name("demo-keys".into()).spawn(move || {
        for byte in io::stdin().lock().bytes() {
            let Ok(byte) = byte else { return };
            if let Some(action) = action(byte)
                && tx.send(action).is_err()
            {
                return;
            }
        }
    })?;
    Ok(rx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_one_key_and_none_is_taken_twice() {
        for kind in Kind::ALL {
            assert_eq!(KEYS.iter().filter(|(_, k, _)| *k == kind).count(), 1, "{kind}");
        }
        let mut keys: Vec<_> = KEYS.iter().map(|(k, _, _)| *k).collect();
        keys.push(b'q');
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), KEYS.len() + 1);
    }

    #[test]
    fn bytes_mean_what_the_help_says() {
        assert_eq!(action(b'K'), Some(Action::Fault(Kind::Kill)));
        assert_eq!(action(b'3'), Some(Action::Target(2)));
        assert_eq!(action(0x03), Some(Action::Quit));
        assert_eq!(action(0x1b), None);
    }
}
