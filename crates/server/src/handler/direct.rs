//! Responses that workers write to the client themselves (`docs/handover.md` §7): when they may, and what follows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use sendoff_config::Direct;
use sendoff_fastcgi::direct::{self, Rest, Sent};

use super::application::{Body, cut, pass_body};
use crate::connection::{Asked, Client, Outcome};
use crate::front::Loop;
use crate::router::Script;
use crate::upstream::{Exchange, RequestMessageBuilder};

/// Scripts whose responses are remembered.
const MAX_SCRIPTS: usize = 1024;

/// How large the responses of scripts are as a rule: the newest counts for a quarter.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    scripts: RefCell<HashMap<Vec<u8>, u64>>,
}

impl Sizes {
    fn of(&self, script: &Script) -> u64 {
        self.scripts.borrow().get(&script.filename).copied().unwrap_or(0)
    }

    /// Notes the body bytes of a response, without those of files.
    pub(super) fn note(&self, script: &Script, size: u64) {
        let mut scripts = self.scripts.borrow_mut();
        if let Some(known) = scripts.get_mut(&script.filename) {
            *known = *known / 4 * 3 + size / 4;
        } else {
            if scripts.len() == MAX_SCRIPTS {
                // They are learned again, with one response each.
                scripts.clear();
            }
            scripts.insert(script.filename.clone(), size);
        }
    }
}

/// Offers the client's socket to the worker that will get the request, if that promises to be of use. Returns whether it
/// did; `None` if it could not.
pub(super) fn offer(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    script: &Script,
    message: &mut RequestMessageBuilder,
) -> Option<bool> {
    let is_explained = client.report.is_some();
    if is_explained || *asked.method == Method::HEAD || !client.may_be_lent() {
        return None;
    }
    let wanted = match event_loop.site().delivery.direct() {
        Direct::Never => return None,
        Direct::Auto => event_loop.choice.offers(event_loop.sizes.of(script)),
        Direct::Always => true,
    };
    if !wanted {
        return Some(false);
    }
    if !client.lend(asked.version) {
        return None;
    }
    message.lend(direct::Client {
        http_10: asked.version == Version::HTTP_10,
        keep_alive: asked.keep_alive,
        fields: event_loop.common_lines().as_bytes(),
    });
    Some(true)
}

/// Goes on with a response that a worker has begun, as a rule to its end.
///
/// # Errors
/// The client is gone, or its response was cut short.
pub(super) async fn take_over(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    exchange: Exchange,
    sent: Sent,
) -> io::Result<Outcome> {
    let broken = |exchange: &Exchange, why: &str| {
        exchange.give_up(why);
        Err(cut(format!("{}: {why}", exchange.who())))
    };
    let Ok(status) = StatusCode::from_u16(sent.status) else {
        return broken(&exchange, "it wrote a head with an impossible status");
    };
    if sent.gone {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    if let Err(lie) = client.resume(&sent) {
        return broken(&exchange, &lie.to_string());
    }
    let body = Body { rest: Bytes::new(), surplus: sent.surplus, zero_copy: None };
    pass_body(event_loop, client, exchange, body).await?;
    Ok(Outcome { status, keep_alive: asked.keep_alive && sent.rest != Rest::Close })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::Upstream;

    fn script(name: String) -> Script {
        let filename = name.into_bytes();
        Script { filename, name: vec![], path_info: vec![], upstream: Upstream::Workers }
    }

    #[test]
    fn a_script_is_known_by_its_last_responses_and_few_are_remembered() {
        let (sizes, page) = (Sizes::default(), script("/page.php".to_owned()));
        assert_eq!(sizes.of(&page), 0);
        sizes.note(&page, 1 << 20);
        assert_eq!(sizes.of(&page), 1 << 20);
        let mut small = 0;
        while sizes.of(&page) >= 1 << 17 {
            sizes.note(&page, 100);
            small += 1;
        }
        assert!((3..20).contains(&small), "{small}");
        sizes.note(&page, u64::MAX);
        sizes.note(&page, u64::MAX);
        for number in 0..3 * MAX_SCRIPTS {
            sizes.note(&script(number.to_string()), 1);
        }
        assert!(sizes.scripts.borrow().len() <= MAX_SCRIPTS && sizes.of(&page) == 0);
    }
}
