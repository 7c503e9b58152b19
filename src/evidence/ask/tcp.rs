//! Is a connection accepted? The kernel accepts for a process that is stopped, so that alone says little: where sock_diag
//! shows it, the process itself must have taken the connection from the queue.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::sys::sock_diag::SockDiag;
use crate::sys::tcp::TcpState;

/// Between two looks whether it was accepted.
const LOOK: Duration = Duration::from_millis(5);

pub(super) async fn ask(service: SocketAddr) -> Result<String, String> {
    let io = TcpStream::connect(service).await.map_err(|e| format!("cannot connect: {e}"))?;
    let unseen = "connected; whether the process accepted cannot be seen here";
    let (Ok(local), Ok(mut diag)) = (io.local_addr(), SockDiag::open()) else { return Ok(unseen.to_owned()) };
    loop {
        match diag.connection(service, local) {
            // It has an owner, or had one that closed it: what waits in the queue is established and nobody's.
            Ok(Some(s)) if s.inode != 0 || s.state != TcpState::Established => {
                return Ok("accepted".to_owned());
            }
            Ok(Some(_)) => tokio::time::sleep(LOOK).await,
            Ok(None) | Err(_) => return Ok(unseen.to_owned()),
        }
    }
}
