//! Kernel pipes for splice, kept per worker while bulk data moves and closed when it stops.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Bytes a pipe can hold if every slot is a full page: twice the largest frame, for a slot goes also to a page that
/// begins in its middle and to each segment of the network, however short. Four times was not faster.
pub const CAPACITY: usize = 512 * 1024;
/// Most pipes of one worker: two descriptors each, and the kernel allows an unprivileged user 64 MiB of pipes.
const MOST: usize = 64;
/// Free pipes kept for the next use.
const KEEP: usize = 16;

/// Shared by every link of one worker.
#[derive(Default)]
pub struct Pipes {
    free: RefCell<Vec<(OwnedFd, OwnedFd)>>,
    out: Cell<usize>,
    held: Cell<usize>,
    used: Cell<bool>,
    refused: Cell<bool>,
}

impl Pipes {
    /// An empty pool.
    pub fn new() -> Rc<Pipes> {
        Rc::new(Pipes::default())
    }

    /// An empty pipe. None if there are too many or the kernel allows no more: then bytes are to be copied.
    pub fn take(self: &Rc<Pipes>) -> Option<Pipe> {
        let free = self.free.borrow_mut().pop();
        let ends = match free {
            Some(ends) => ends,
            None => self.make()?,
        };
        self.used.set(true);
        self.out.set(self.out.get() + 1);
        Some(Pipe { ends: Some(ends), len: 0, pool: self.clone() })
    }

    fn make(&self) -> Option<(OwnedFd, OwnedFd)> {
        if self.refused.get() || self.out.get() >= MOST {
            return None;
        }
        let made = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).and_then(|(read, write)| {
            // Beyond the user's limit a new pipe has two slots only: worse than copying.
            fcntl_setpipe_size(&write, CAPACITY)?;
            Ok((read, write))
        });
        if let Err(e) = &made {
            self.refused.set(true);
            tracing::debug!(error = %e, "no pipe for splice: copying");
        }
        made.ok()
    }

    /// Bytes in pipes.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// To be called now and then: closes the free pipes unless one was used since the last call, and lets the kernel
    /// be asked again after a refusal.
    pub fn rest(&self) {
        self.refused.set(false);
        if !self.used.replace(false) {
            self.free.borrow_mut().clear();
        }
    }
}

/// A pipe; goes back to its pool when dropped empty, and is closed when dropped with bytes in it.
pub struct Pipe {
    ends: Option<(OwnedFd, OwnedFd)>,
    len: usize,
    pool: Rc<Pipes>,
}

impl Pipe {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves up to `most` bytes from a socket into the pipe. `WouldBlock` means that the socket has none *only* if the
    /// pipe was empty; else it may be the pipe that is full.
    ///
    /// # Errors
    /// That of splice.
    pub fn fill(&mut self, from: impl AsFd, most: usize) -> io::Result<usize> {
        let Some((_, write)) = &self.ends else { return Err(io::ErrorKind::NotConnected.into()) };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let n = splice(from, None, write, None, most, flags)?;
        self.note(self.len + n);
        Ok(n)
    }

    /// Moves bytes from the pipe to a socket.
    ///
    /// # Errors
    /// That of splice; `WouldBlock` means that the socket takes nothing now.
    pub fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let Some((read, _)) = &self.ends else { return Err(io::ErrorKind::NotConnected.into()) };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let n = splice(read, None, to, None, self.len, flags)?;
        self.note(self.len - n.min(self.len));
        Ok(n)
    }

    fn note(&mut self, len: usize) {
        self.pool.held.set(self.pool.held.get() + len - self.len);
        self.len = len;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.pool.out.set(self.pool.out.get() - 1);
        let Some(ends) = self.ends.take() else { return };
        let mut free = self.pool.free.borrow_mut();
        if self.len == 0 && free.len() < KEEP {
            free.push(ends);
        }
        drop(free);
        self.note(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_pass_and_an_empty_pipe_comes_back() {
        let pool = Pipes::new();
        let (mut a, b) = UnixStream::pair().unwrap();
        let (c, mut d) = UnixStream::pair().unwrap();
        a.write_all(b"payload").unwrap();
        let mut pipe = pool.take().unwrap();
        assert_eq!(pipe.fill(&b, CAPACITY).unwrap(), 7);
        assert_eq!((pipe.len(), pool.held()), (7, 7));
        assert_eq!(pipe.drain(&c).unwrap(), 7);
        let mut got = [0; 7];
        d.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"payload");
        assert_eq!(pool.held(), 0);
        drop(pipe);
        assert_eq!(pool.free.borrow().len(), 1);
        pool.rest();
        assert_eq!(pool.free.borrow().len(), 1, "used since the last call");
        pool.rest();
        assert_eq!(pool.free.borrow().len(), 0);
    }

    #[test]
    fn a_pipe_with_bytes_in_it_is_never_used_again() {
        let pool = Pipes::new();
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(b"left over").unwrap();
        let mut pipe = pool.take().unwrap();
        pipe.fill(&b, CAPACITY).unwrap();
        drop(pipe);
        assert_eq!((pool.free.borrow().len(), pool.held(), pool.out.get()), (0, 0, 0));
    }

    #[test]
    fn an_empty_pipe_says_would_block_for_the_socket_and_0_at_its_end() {
        let pool = Pipes::new();
        let (a, b) = UnixStream::pair().unwrap();
        b.set_nonblocking(true).unwrap();
        let mut pipe = pool.take().unwrap();
        assert_eq!(pipe.fill(&b, 10).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(pipe.fill(&b, 10).unwrap(), 0);
    }

    #[test]
    fn there_is_a_most() {
        let pool = Pipes::new();
        pool.out.set(MOST);
        assert!(pool.take().is_none());
        pool.out.set(0);
    }
}
