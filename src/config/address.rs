//! Addresses and networks, with hints for the usual slips.
//!
//! Pure: no IO, no clock.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::checked::Cidr;
use super::kind::Role;
use super::value::{Fault, fault, fault_hint};

pub(super) fn read_address(text: &str, role: Role) -> Result<SocketAddr, Fault> {
    let address = match text.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) => return address_fault(text, role),
    };
    let ip = address.ip();
    match role {
        _ if ip.is_multicast() || ip == IpAddr::from([255; 4]) => fault("a multicast or broadcast address"),
        Role::Dial if address.port() == 0 => fault("port 0 cannot be connected to"),
        Role::Dial if ip.is_unspecified() => {
            fault_hint("the wildcard address cannot be connected to", "for a local service write 127.0.0.1")
        }
        Role::Listen | Role::Dial => Ok(address),
    }
}

fn address_fault<T>(text: &str, role: Role) -> Result<T, Fault> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        let example = SocketAddr::new(ip, 8080);
        if let Some(meant) = unbracketed(text) {
            return fault_hint(
                "an IPv6 address without brackets",
                format!("write \"{meant}\", or \"{example}\" if all of it is the address"),
            );
        }
        return fault_hint("no port", format!("write the port too, such as \"{example}\""));
    }
    if let Some((_, rest)) = text.split_once("://") {
        return fault_hint(
            "a URL where an address is needed",
            format!("write only \"IP:port\", not {rest:?}"),
        );
    }
    if text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()) {
        let all = if role == Role::Listen {
            format!(", or \"0.0.0.0{text}\" for all addresses")
        } else {
            String::new()
        };
        return fault_hint("no IP address", format!("write \"127.0.0.1{text}\"{all}"));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return match port.parse::<u16>() {
            Ok(port) => fault_hint("not an address", format!("write \"{}\"", SocketAddr::new(ip, port))),
            Err(_) => fault(format!("{port:?} is not a port")),
        };
    }
    let dns = |h: &str| !h.is_empty() && h.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    let digits = |h: &str| h.chars().all(|c| c.is_ascii_digit() || c == '.');
    if dns(host) && !digits(host) {
        let hint = "write an IP address; DNS names come with discovery";
        return fault_hint(format!("{host:?} is a host name"), hint);
    }
    fault("not an address")
}

/// `::1:7501` is an address to the letter; most who write it mean a port.
fn unbracketed(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let (host, port) = (host.parse::<Ipv6Addr>().ok()?, port.parse::<u16>().ok()?);
    (port >= 1000).then(|| SocketAddr::new(host.into(), port))
}

/// A CIDR block; a bare address is a block of one.
pub(super) fn read_network(text: &str) -> Result<Cidr, Fault> {
    let (addr, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
    let Ok(addr) = addr.parse::<IpAddr>() else { return fault("not a network") };
    let bits = if addr.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix.map(str::parse::<u8>) {
        None => bits,
        Some(Ok(prefix)) if prefix <= bits => prefix,
        Some(_) => return fault(format!("the prefix must be 0 to {bits}")),
    };
    let network = mask(addr, prefix);
    if network != addr {
        let hint = format!("write \"{network}/{prefix}\" for the network, \"{addr}/{bits}\" for the host");
        return fault_hint("bits are set past the prefix", hint);
    }
    Ok(Cidr { addr, prefix })
}

fn mask(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(v4) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::from((v4.to_bits() & keep).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::from((v6.to_bits() & keep).to_be_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let ok = |t: &str| read_network(t).map(|c| (c.addr.to_string(), c.prefix)).unwrap();
        assert_eq!(ok("10.0.0.0/8"), ("10.0.0.0".to_owned(), 8));
        assert_eq!(ok("0.0.0.0/0"), ("0.0.0.0".to_owned(), 0));
        assert_eq!(ok("::/0"), ("::".to_owned(), 0));
        assert_eq!(ok("10.1.2.3"), ("10.1.2.3".to_owned(), 32));
        assert_eq!(ok("fd00::1"), ("fd00::1".to_owned(), 128));
        assert!(read_network("10.1.2.3/8").unwrap_err().hint.unwrap().contains("10.0.0.0/8"));
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "x/8", "10.0.0/8", "/8"] {
            assert!(read_network(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn address_faults_say_what_is_missing() {
        for (text, hint) in [
            ("10.0.0.1", "10.0.0.1:8080"),
            ("fd00::1", "[fd00::1]:8080"),
            ("::1:7501", "\"[::1]:7501\""),
            ("fd00::4:8080", "\"[fd00::4]:8080\", or \"[fd00::4:8080]:8080\""),
            (":8080", "127.0.0.1:8080"),
            ("http://10.0.0.1:80", "IP:port"),
            ("inventory:8080", "DNS names come with discovery"),
            ("localhost", "DNS names come with discovery"),
            ("[10.0.0.1]:80", "10.0.0.1:80"),
        ] {
            let fault = read_address(text, Role::Dial).unwrap_err();
            assert!(fault.hint.as_deref().unwrap_or("").contains(hint), "{text}: {fault:?}");
        }
        for text in
            ["", "10.0.0.1:", "10.0.0.1:99999", "256.0.0.1:80", "[fd00::1]", ":", ":::", "[", "1.2.3.4:x"]
        {
            assert!(read_address(text, Role::Listen).is_err(), "{text}");
        }
        assert!(read_address("0.0.0.0:80", Role::Dial).is_err());
        assert!(read_address("10.0.0.1:0", Role::Dial).is_err());
        assert!(read_address("[::]:0", Role::Listen).is_ok());
    }
}
