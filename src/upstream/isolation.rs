//! Pure: no IO, no clock. Are we the ones cut off? (detection.md section 5, last row)

use std::net::IpAddr;
use std::time::Duration;

use crate::stamp::Stamp;

/// FAILED by silence is held at most this long while everything is silent.
pub const ISOLATION_HOLD: Duration = Duration::from_secs(2);
const ENDPOINTS_MIN: usize = 3;
const ADDRESSES_MIN: usize = 3;
const SILENT_SHARE: f64 = 0.8;
const TOGETHER: Duration = Duration::from_millis(100);

/// One endpoint as this question sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Its address.
    pub address: IpAddr,
    /// Since when it is silent past its deadline; None if it is not.
    pub since: Option<Stamp>,
}

/// Whether so much fell silent so closely together that the fault is ours: at least 3 endpoints on 3 addresses, 80 %
/// of them silent within 100 ms, and no byte on any socket (`any_byte`: the latest) since the first fell silent.
pub fn self_isolated(endpoints: &[Silence], any_byte: Stamp) -> bool {
    let silent: Vec<Stamp> = endpoints.iter().filter_map(|e| e.since).collect();
    let (Some(first), Some(last)) = (silent.iter().min(), silent.iter().max()) else { return false };
    let mut addresses: Vec<IpAddr> =
        endpoints.iter().filter(|e| e.since.is_some()).map(|e| e.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    silent.len() >= ENDPOINTS_MIN
        && addresses.len() >= ADDRESSES_MIN
        && silent.len() as f64 >= SILENT_SHARE * endpoints.len() as f64
        && last.since(*first) <= TOGETHER
        && any_byte <= *first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(silences: &[Option<u64>]) -> Vec<Silence> {
        silences
            .iter()
            .enumerate()
            .map(|(i, s)| Silence {
                address: IpAddr::from([10, 0, 0, i as u8]),
                since: s.map(Stamp::from_millis),
            })
            .collect()
    }

    #[test]
    fn table() {
        let byte = Stamp::from_millis(990);
        assert!(self_isolated(&set(&[Some(1000), Some(1050), Some(1100)]), byte));
        assert!(self_isolated(&set(&[Some(1000), Some(1050), Some(1100), Some(1000), None]), byte));
        assert!(!self_isolated(&set(&[]), byte));
        assert!(!self_isolated(&set(&[Some(1000), Some(1000)]), byte), "too few");
        assert!(!self_isolated(&set(&[Some(1000), Some(1000), Some(1000), None]), byte), "one of four lives");
        assert!(!self_isolated(&set(&[Some(1000), Some(1000), Some(1101)]), byte), "not together");
        assert!(
            !self_isolated(&set(&[Some(1000), Some(1000), Some(1000)]), Stamp::from_millis(1001)),
            "a byte"
        );
        let one = IpAddr::from([10, 0, 0, 1]);
        let same = vec![Silence { address: one, since: Some(Stamp::from_millis(1000)) }; 5];
        assert!(!self_isolated(&same, byte), "one machine");
    }
}
