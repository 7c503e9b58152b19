//! What is known of the far side, whom to choose, and by which link (detection.md sections 3 to 6).
//!
//! Pure: [`endpoint`] joins the link's verdicts ([`link_side`]) with the vouches for the services ([`service`], one per node: [`nodes`])
//! into one health; [`redial`] says when to knock; [`isolation`] when the fault is ours, [`starved`] when it is an upstream's of theirs; [`talk`] what
//! connections without a link tell; [`balance`] chooses among the endpoints of an upstream.
//!
//! Shells: [`registry`] is what every worker reads; [`owner`] is the one writer of an endpoint's state; `telling` what it says of it; [`hub`] gives a
//! worker its links; [`dial`] makes them; [`side`] is what an outbound link tells its owner, [`work`] what its beats say of the service's
//! work, [`plain`] what connections without one do; [`asking`] is what our own service waits for. `slot` holds the links of one endpoint.

pub mod asking;
pub mod balance;
pub mod dial;
pub mod endpoint;
pub mod facts;
pub mod hub;
pub mod isolation;
#[cfg(test)]
mod isolation_tests;
pub mod link_side;
pub mod nodes;
pub mod owner;
pub mod plain;
pub mod redial;
pub mod registry;
pub mod service;
pub mod side;
mod slot;
pub mod starved;
pub mod talk;
mod telling;
pub mod work;
