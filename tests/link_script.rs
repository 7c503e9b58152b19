//! The link, frame by frame: one side is the real program, the other is played by the test, which sees and says every
//! frame itself. Both roles: a scripted dialer against an inbound sidecar, a scripted acceptor against an outbound one.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

#[path = "link_script/far.rs"]
mod far;
#[path = "link_script/near.rs"]
mod near;
#[path = "link_script/peer.rs"]
mod peer;

#[path = "link_script/causes.rs"]
mod causes;
#[path = "link_script/counted.rs"]
mod counted;
#[path = "link_script/enforce.rs"]
mod enforce;
#[path = "link_script/inbound.rs"]
mod inbound;
#[path = "link_script/inbound_abuse.rs"]
mod inbound_abuse;
#[path = "link_script/isolation.rs"]
mod isolation;
#[path = "link_script/liars.rs"]
mod liars;
#[path = "link_script/one_stream.rs"]
mod one_stream;
#[path = "link_script/outbound.rs"]
mod outbound;
#[path = "link_script/outbound_abuse.rs"]
mod outbound_abuse;
#[path = "link_script/outbound_floods.rs"]
mod outbound_floods;
#[path = "link_script/plain.rs"]
mod plain;
#[path = "link_script/shadows.rs"]
mod shadows;
#[path = "link_script/verdicts.rs"]
mod verdicts;
