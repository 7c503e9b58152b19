//! Application connections: [`outbound`] takes them from the local service, [`inbound`] brings them to it, [`plain`]
//! passes them on where no sidecar is on the far side. [`accept`] is the way in for all, [`served`] counts them; [`groups`] knows
//! which links come from one process.

pub mod accept;
pub mod groups;
pub mod inbound;
pub mod meter;
pub mod outbound;
pub mod plain;
pub mod quota;
pub mod served;
pub mod strangers;
