//! Sendoff in each delivery mode, under the names of the thesis; the reference comes first.

use super::responder::Responder;
use super::{Peer, Sendoff};

/// The modes, with Sendoff's own PHP workers.
pub(crate) fn delivery_modes(sendoff: &Sendoff) -> Vec<Box<dyn Peer>> {
    modes(sendoff).map(|sendoff| Box::new(sendoff) as Box<dyn Peer>).into()
}

/// The modes with a FastCGI program in C, then the program over TCP and with Debian's libfcgi.
pub(crate) fn responder_modes(sendoff: &Sendoff) -> Vec<Box<dyn Peer>> {
    let responder = |sendoff: Sendoff, over_tcp, stock| {
        let name = sendoff.name;
        Box::new(Responder { name, sendoff, over_tcp, stock }) as Box<dyn Peer>
    };
    let more = [
        responder(in_mode(sendoff, "fcgi_inet", "relay"), true, false),
        responder(in_mode(sendoff, "stock_uds", "relay"), false, true),
    ];
    modes(sendoff).map(|sendoff| responder(sendoff, false, false)).into_iter().chain(more).collect()
}

fn modes(sendoff: &Sendoff) -> [Sendoff; 4] {
    [("base_uds", "relay"), ("sharedmem", "region"), ("passfd", "direct"), ("auto", "auto")]
        .map(|(name, mode)| in_mode(sendoff, name, mode))
}

fn in_mode(sendoff: &Sendoff, name: &'static str, mode: &str) -> Sendoff {
    let extra_args = [&sendoff.extra_args[..], &[format!("--delivery={mode}")]].concat();
    Sendoff { name, extra_args, ..sendoff.clone() }
}
