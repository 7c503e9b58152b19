//! Bodies of answers: a block of bytes, or events as they happen.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::events::{Ended, Event, Follower};

/// One write: enough for a burst, little enough to stay fair.
const CHUNK: usize = 32 * 1024;

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// One JSON object per line.
    Lines,
    /// Server-sent events.
    Sse,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Format::Lines => "application/x-ndjson",
            Format::Sse => "text/event-stream",
        }
    }

    pub(super) fn event(self, out: &mut Vec<u8>, event: &Event) {
        if self == Format::Sse {
            out.extend_from_slice(format!("id: {}\ndata: ", event.seq).as_bytes());
        }
        if let Err(e) = serde_json::to_writer(&mut *out, event) {
            tracing::error!(error = %e, "an event could not be written");
        }
        self.end(out);
    }

    /// A line that is no event: something is missing, or the stream ends.
    pub(super) fn note(self, out: &mut Vec<u8>, kind: &str, note: &serde_json::Value) {
        if self == Format::Sse {
            out.extend_from_slice(format!("event: {kind}\ndata: ").as_bytes());
        }
        out.extend_from_slice(note.to_string().as_bytes());
        self.end(out);
    }

    pub(super) fn missed(self, out: &mut Vec<u8>, missed: u64) {
        if missed > 0 {
            self.note(out, "missed", &serde_json::json!({ "missed": missed }));
        }
    }

    fn end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Format::Lines => b"\n",
            Format::Sse => b"\n\n",
        });
    }
}

/// Events as they happen, until the client goes or falls behind.
#[derive(Debug)]
pub(super) struct Live {
    follower: Option<Follower>,
    format: Format,
    head: Vec<u8>,
}

impl Live {
    pub(super) fn new(follower: Follower, format: Format) -> Live {
        let mut head = Vec::new();
        if format == Format::Sse {
            head.extend_from_slice(b"retry: 1000\n\n");
        }
        format.missed(&mut head, follower.missed());
        Live { follower: Some(follower), format, head }
    }

    fn gather(&mut self, cx: &mut Context<'_>) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.head);
        while let Some(follower) = &mut self.follower
            && out.len() < CHUNK
        {
            match follower.poll_next(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(event)) => self.format.event(&mut out, &event),
                Poll::Ready(Err(ended)) => self.finish(&mut out, ended),
            }
        }
        out
    }

    fn finish(&mut self, out: &mut Vec<u8>, ended: Ended) {
        let last = self.follower.take().map_or(0, |f| f.last_seq());
        self.format.note(out, "closed", &serde_json::json!({ "closed": ended.name(), "last_seq": last }));
    }
}

/// The body of every answer.
#[derive(Debug)]
pub(super) enum Answer {
    Block(Full<Bytes>),
    Live(Box<Live>),
}

impl Answer {
    pub(super) fn block(bytes: impl Into<Bytes>) -> Answer {
        Answer::Block(Full::new(bytes.into()))
    }

    /// The kept events and no more.
    pub(super) fn kept(events: &[Arc<Event>], missed: u64, format: Format) -> Answer {
        let mut out = Vec::new();
        format.missed(&mut out, missed);
        for event in events {
            format.event(&mut out, event);
        }
        Answer::block(out)
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let live = match self.get_mut() {
            Answer::Block(full) => return Pin::new(full).poll_frame(cx),
            Answer::Live(live) => live,
        };
        let out = live.gather(cx);
        if !out.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
        }
        if live.follower.is_none() { Poll::Ready(None) } else { Poll::Pending }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Block(full) => full.is_end_stream(),
            Answer::Live(live) => live.follower.is_none() && live.head.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Block(full) => full.size_hint(),
            Answer::Live(_) => SizeHint::default(),
        }
    }
}
