//! The hook's Unix socket (E7, row H12): the service or its runtime announces a pause without HTTP. One line, one answer:
//!
//! ```text
//! pause 500ms full gc      ok announced a pause of 500ms
//! resume                   ok the pause is over
//! anything else            error what is wrong and what is allowed
//! ```
//!
//! Whoever may connect may silence this node's detector for 30 s at a time: the permissions of the file decide who may.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Control;
use super::pause::{self, Order};

/// Hooks that are served at once.
const MAX_CONNECTIONS: usize = 32;
/// Longest line, bytes, its end included.
const MAX_LINE: u64 = 512;
/// A hook may stay connected and announce again; without a whole line for this long it is let go.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);
/// An answer that nobody takes for this long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// After an error of accept such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound socket. Dropping it removes the file, if it is still the one that was made.
#[derive(Debug)]
pub struct Hook {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl Hook {
    /// Makes the socket. A file left by a sidecar that is gone is replaced; one that is served, that belongs to somebody
    /// else or that is no socket is not.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub fn bind(path: &Path, mode: u32) -> Result<Hook, String> {
        let own = check_place(path)?;
        let fail = |what: &str, e: io::Error| format!("cannot {what} {}: {e}", path.display());
        // Beside its place first: it gets its permissions before anybody can find it, and takes the place in one step.
        let fresh = path.with_added_extension("new");
        remove_socket(&fresh, own)?;
        let listener = std::os::unix::net::UnixListener::bind(&fresh).map_err(|e| fail("make", e))?;
        let ready = std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode))
            .and_then(|()| std::fs::symlink_metadata(&fresh))
            .and_then(|m| std::fs::rename(&fresh, path).map(|()| (m.dev(), m.ino())))
            .and_then(|file| listener.set_nonblocking(true).map(|()| file));
        match ready {
            Ok(file) => Ok(Hook { listener, path: path.to_owned(), file }),
            Err(e) => {
                let _ = std::fs::remove_file(&fresh);
                Err(fail("set up", e))
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves hooks for ever. Needs a runtime with time and IO.
    ///
    /// # Errors
    /// The runtime does not take the socket.
    pub async fn serve(&self, control: Arc<dyn Control>) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    tracing::warn!(error = %e, "the hook's socket could not accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(permit) = room.clone().try_acquire_owned() else {
                // Best effort: a fresh socket has room for it.
                let _ = stream.try_write(b"error too many hooks are connected; try again\n");
                continue;
            };
            let control = control.clone();
            connections.spawn(async move {
                if let Err(e) = lines(stream, control.as_ref()).await {
                    tracing::debug!(error = %e, "a hook was let go");
                }
                drop(permit);
            });
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.file);
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a hook's socket could be made at `path`; gives who we are.
///
/// # Errors
/// The folder is missing or open to others, or something else stands there.
pub(crate) fn check_place(path: &Path) -> Result<u32, String> {
    let own = rustix::process::geteuid().as_raw();
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("/"));
    check_folder(dir, own)?;
    check_leftover(path, own)?;
    Ok(own)
}

/// Nobody else may swap the file: the folder is ours or root's, and others may write to it only if it is sticky.
fn check_folder(dir: &Path, own: u32) -> Result<(), String> {
    let at = dir.display();
    let m = std::fs::metadata(dir)
        .map_err(|e| format!("the folder {at} of the hook's socket: {e}; make it before, for this user"))?;
    if !m.is_dir() {
        return Err(format!("{at} is no folder"));
    }
    if m.uid() != own && m.uid() != 0 {
        return Err(format!(
            "the folder {at} belongs to user {}: it must be this user's ({own}) or root's",
            m.uid()
        ));
    }
    if m.mode() & 0o1002 == 0o002 {
        return Err(format!("anybody may replace files in {at}: chmod o-w {at}, or choose another folder"));
    }
    Ok(())
}

fn check_leftover(path: &Path, own: u32) -> Result<(), String> {
    let Some(uid) = socket_owner(path)? else { return Ok(()) };
    let at = path.display();
    if uid != own && uid != 0 {
        return Err(format!("{at} belongs to user {uid}: remove it"));
    }
    match connects(path) {
        Ok(()) => Err(format!("{at} is served by another process: stop it, or choose another path")),
        // Nobody listens: its maker is gone.
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(e) => Err(format!("{at} may be in use ({e}): stop who serves it, or remove it")),
    }
}

/// Without waiting: one that serves and is busy is there all the same.
fn connects(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

/// The user of the socket at `path`; `None`: nothing is there.
fn socket_owner(path: &Path) -> Result<Option<u32>, String> {
    match std::fs::symlink_metadata(path) {
        Ok(m) if m.file_type().is_socket() => Ok(Some(m.uid())),
        Ok(_) => Err(format!(
            "{} is there and is no socket: it is left alone; choose another path",
            path.display()
        )),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("cannot look at {}: {e}", path.display())),
    }
}

fn remove_socket(path: &Path, own: u32) -> Result<(), String> {
    match socket_owner(path)? {
        Some(uid) if uid == own => {
            std::fs::remove_file(path).map_err(|e| format!("cannot remove {}: {e}", path.display()))
        }
        Some(uid) => Err(format!("{} belongs to user {uid}: remove it", path.display())),
        None => Ok(()),
    }
}

/// One connection: a line, an answer, until its end.
async fn lines(mut stream: UnixStream, control: &dyn Control) -> io::Result<()> {
    let uid = stream.peer_cred().map(|c| c.uid()).ok();
    let (read, mut write) = stream.split();
    let mut read = BufReader::with_capacity(MAX_LINE as usize, read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut read).take(MAX_LINE);
        tokio::time::timeout(LINE_TIMEOUT, limited.read_until(b'\n', &mut line)).await??;
        if line.is_empty() {
            return Ok(());
        }
        let ended = line.pop_if(|b| *b == b'\n').is_some();
        // `printf 'pause 1s'` without a line's end is meant all the same, a line that was cut is not.
        let too_long = !ended && line.len() as u64 >= MAX_LINE;
        let answer = match too_long {
            true => Err(format!("a line has at most {MAX_LINE} bytes")),
            false => pause::order(&line).and_then(|order| obey(control, order)),
        };
        tracing::debug!(uid, line = %String::from_utf8_lossy(&line).escape_debug(), ok = answer.is_ok(), "hook");
        let text = match answer {
            Ok(said) => format!("ok {said}\n"),
            Err(why) => format!("error {why}\n"),
        };
        // A hook that does not wait for its answer may have said `resume` already: what it said counts.
        let _ = tokio::time::timeout(WRITE_TIMEOUT, write.write_all(text.as_bytes())).await;
        if !ended {
            return Ok(());
        }
    }
}

fn obey(control: &dyn Control, order: Order) -> Result<String, String> {
    match order {
        Order::Pause(pause, reason) => {
            control.maintenance(pause, &reason)?;
            Ok(format!("announced a pause of {}", humantime::format_duration(pause)))
        }
        Order::Resume => control.resume().map(|()| "the pause is over".to_owned()),
    }
}
