//! `sidebeat replay`: the shipped laws over recorded arrivals (rows H15, T15).
//! Pure: no IO, no clock, but for [`mod@run`], which reads the files and prints.
//!
//! ```text
//!  files ──► tracks (holes, stretches) ──► survey: who lived when, cuts; are the recorded verdicts reproduced?
//!                                     └──► score: one player per link and row ──► report, plot
//! ```
//!
//! Two passes over the files, each a record at a time: a trace of any length fits.

pub mod args;
pub mod mistakes;
pub mod player;
pub mod report;
pub mod rows;
pub mod run;
pub mod score;
pub mod survey;
pub mod tracks;
pub mod watch;

pub use args::Args;
pub use run::run;

#[cfg(test)]
mod tests;
