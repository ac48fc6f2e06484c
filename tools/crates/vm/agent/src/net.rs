// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The guest's network: the loopback device, and the card that `--net` plugs in, with the addresses
//! that QEMU's user networking has for its one guest. By rtnetlink: a root need not have `ip`.

use anyhow::{bail, Context, Result};
use netlink_packet_core::{
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE,
    NLM_F_REQUEST,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{protocols::NETLINK_ROUTE, Socket, SocketAddr};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What QEMU's user networking gives its first guest, and whom it plays.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const PREFIX: u8 = 24;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// TIMEOUT: a card that is plugged in is there within a second or two on an idle host.
const ARRIVAL: Duration = Duration::from_secs(60);

/// A loopback device that is up is what programs expect.
pub fn raise_loopback() -> Result<()> {
    raise(index_of("lo")?)
}

/// Waits for the card and makes it the way to everywhere.
pub fn set_up() -> Result<()> {
    let card = await_card()?;
    raise(card).context("bringing the network card up")?;
    let mut address = AddressMessage::default();
    address.header.family = AddressFamily::Inet;
    address.header.prefix_len = PREFIX;
    address.header.index = card;
    address.attributes = vec![
        AddressAttribute::Local(ADDRESS.into()),
        AddressAttribute::Address(ADDRESS.into()),
    ];
    ask(RouteNetlinkMessage::NewAddress(address), NEW).context("the guest's address")?;
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.table = RouteHeader::RT_TABLE_MAIN;
    route.header.protocol = RouteProtocol::Boot;
    route.header.scope = RouteScope::Universe;
    route.header.kind = RouteType::Unicast;
    route.attributes = vec![
        RouteAttribute::Gateway(RouteAddress::Inet(GATEWAY)),
        RouteAttribute::Oif(card),
    ];
    ask(RouteNetlinkMessage::NewRoute(route), NEW).context("the way out")?;
    // It may be a link to what a service that is not there would write.
    let _ = fs::remove_file(RESOLV_CONF);
    fs::write(RESOLV_CONF, format!("nameserver {NAME_SERVER}\n")).context(RESOLV_CONF)
}

/// The number of the first device that is not the loopback.
fn await_card() -> Result<u32> {
    let deadline = Instant::now() + ARRIVAL;
    loop {
        for entry in fs::read_dir("/sys/class/net")?.flatten() {
            let name = entry.file_name();
            // One that a kernel makes by itself, such as sit0, has no device below it.
            if entry.path().join("device").exists() {
                return index_of(&name.to_string_lossy());
            }
        }
        if Instant::now() > deadline {
            bail!("no network card has come");
        }
        sleep(Duration::from_millis(10));
    }
}

fn index_of(name: &str) -> Result<u32> {
    let path = Path::new("/sys/class/net").join(name).join("ifindex");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().parse()?)
}

fn raise(index: u32) -> Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    ask(RouteNetlinkMessage::SetLink(link), 0)
}

const NEW: u16 = NLM_F_CREATE | NLM_F_REPLACE;

/// Sends one message and waits for the kernel's answer to it.
fn ask(message: RouteNetlinkMessage, flags: u16) -> Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)?.payload {
        NetlinkPayload::Error(error) => match error.code {
            None => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code.get().abs()).into()),
        },
        other => bail!("the kernel answers {other:?}"),
    }
}
