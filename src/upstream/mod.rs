//! Pure: no IO, no clock. What is known of the far side, and whom to choose (detection.md sections 3 to 6).
//!
//! [`endpoint`] joins the link's verdicts ([`link_side`]) with the vouch for the service ([`service`]) into one
//! health per node; [`redial`] says when to knock; [`balance`] chooses among the endpoints of an upstream.

pub mod balance;
pub mod endpoint;
pub mod facts;
pub mod isolation;
pub mod link_side;
pub mod redial;
pub mod service;
