// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The guest's way to the network, where it is asked for: a virtio card that QEMU's user networking
//! answers. It needs no rights: what the guest connects to, QEMU connects to as this user.

use serde_json::{json, Value};
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// The name of the network in QEMU.
const NETWORK: &str = "net";
/// The name of the port that the card is plugged into.
pub const PORT: &str = "net-port";

/// A port of the guest's that this machine has as one of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    protocol: Protocol,
    address: Ipv4Addr,
    host: u16,
    guest: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

impl FromStr for Publish {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "[ADDRESS:]HOST:GUEST[/udp] is expected, such as 8080:80";
        let (ports, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some(_) => return Err(EXPECTED),
        };
        let (host, guest) = ports.rsplit_once(':').ok_or(EXPECTED)?;
        // Nobody else's unless they are asked for.
        let (address, host) = match host.rsplit_once(':') {
            None => (Ipv4Addr::LOCALHOST, host),
            Some((address, host)) => (address.parse().map_err(|_| EXPECTED)?, host),
        };
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0).ok_or(EXPECTED);
        Ok(Self {
            protocol,
            address,
            host: port(host)?,
            guest: port(guest)?,
        })
    }
}

/// As QEMU writes it.
impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        let Self {
            address,
            host,
            guest,
            ..
        } = self;
        write!(f, "hostfwd={protocol}:{address}:{host}-:{guest}")
    }
}

/// What QEMU's `-netdev` takes.
pub fn backend(publish: &[Publish]) -> String {
    let published = publish.iter().map(|publish| format!(",{publish}"));
    format!("user,id={NETWORK}{}", published.collect::<String>())
}

/// The card, as QMP's `device_add` takes it.
pub fn card() -> Value {
    json!({
        "driver": "virtio-net-pci",
        "id": "network",
        "bus": PORT,
        "netdev": NETWORK,
        // Nothing is booted from it.
        "romfile": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_ours_alone_unless_it_says_otherwise() {
        let qemu = |text: &str| text.parse::<Publish>().map(|publish| publish.to_string());
        assert_eq!(qemu("8080:80").unwrap(), "hostfwd=tcp:127.0.0.1:8080-:80");
        assert_eq!(
            qemu("0.0.0.0:53:5353/udp").unwrap(),
            "hostfwd=udp:0.0.0.0:53-:5353"
        );
        for wrong in [
            "", "80", "80:", "0:80", "80:65536", "host:1:2", "1:2/sctp", "1:2,x=y",
        ] {
            assert!(qemu(wrong).is_err(), "{wrong}");
        }
        let both = ["1:2", "3:4"].map(|text| text.parse().unwrap());
        assert_eq!(
            backend(&both),
            "user,id=net,hostfwd=tcp:127.0.0.1:1-:2,hostfwd=tcp:127.0.0.1:3-:4"
        );
    }
}
