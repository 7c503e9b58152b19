//! The shells of probes (E5): one question to a service, one answer in words. They run on the control thread and have
//! connections of their own: a probe that shared the data path would be deceived by it.

mod exec;
mod http;
mod tcp;

use std::net::SocketAddr;
use std::time::Duration;

pub use http::Statuses;

/// How a service is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Is a connection accepted, by the process and not only by its kernel?
    Tcp,
    /// Does `GET path` answer with one of these?
    Http {
        /// Path and query, beginning with a slash.
        path: String,
        /// What is well.
        status: Statuses,
    },
    /// Does this program end with exit code 0? No shell: program and arguments as they are.
    Exec {
        /// The program and its arguments; not empty.
        command: Vec<String>,
        /// Added to the environment of the sidecar.
        env: Vec<(String, String)>,
    },
}

impl Question {
    /// For people: `http /health`, `tcp`, `exec pg_isready`.
    pub fn what(&self) -> String {
        match self {
            Question::Tcp => "tcp".to_owned(),
            Question::Http { path, .. } => format!("http {path}"),
            Question::Exec { command, .. } => {
                format!("exec {}", command.first().map_or("nothing", String::as_str))
            }
        }
    }
}

/// Asks `service` once. `service` is an address that can be connected to. Needs a runtime with time, not a worker's.
///
/// # Errors
/// What was wrong, in words; that there was no answer `within` that time, too.
pub async fn ask(service: SocketAddr, question: &Question, within: Duration) -> Result<String, String> {
    let answer = match question {
        // It keeps its time itself: the program must not outlive it.
        Question::Exec { command, env } => return exec::ask(command.clone(), env.clone(), within).await,
        Question::Tcp => tokio::time::timeout(within, tcp::ask(service)).await,
        Question::Http { path, status } => {
            tokio::time::timeout(within, http::ask(service, path, status)).await
        }
    };
    answer.unwrap_or_else(|_| Err(format!("no answer within {}", humantime::format_duration(within))))
}

#[cfg(test)]
mod tests;
