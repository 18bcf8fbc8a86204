//! The handler of a route.

use sendoff_config::{Address, Attachment, Handler, Matching, ProxyAddress};
use sendoff_setting_values::{AppAddress, At, Php, Place};

use super::Routes;
use crate::keys;

/// The keys that say what answers the requests of a route.
#[derive(Debug, Clone, Copy)]
enum HandlerKey {
    Static,
    Listing,
    Php,
    Fastcgi,
    Proxy,
    Redirect,
    Respond,
    Deny,
    Metrics,
    StatusPage,
    Ready,
}

impl HandlerKey {
    /// The keys that the section has, and their places.
    fn given(section: &keys::Route) -> Vec<(Self, Place)> {
        [
            section.statics.as_ref().map(|at| (Self::Static, at.place)),
            section.listing.as_ref().map(|at| (Self::Listing, at.place)),
            section.php.as_ref().map(|at| (Self::Php, at.place)),
            section.fastcgi.as_ref().map(|at| (Self::Fastcgi, at.place)),
            section.proxy.as_ref().map(|at| (Self::Proxy, at.place)),
            section.redirect.as_ref().map(|at| (Self::Redirect, at.place)),
            section.respond.as_ref().map(|at| (Self::Respond, at.place)),
            section.deny.as_ref().map(|at| (Self::Deny, at.place)),
            section.metrics.as_ref().map(|at| (Self::Metrics, at.place)),
            section.status_page.as_ref().map(|at| (Self::StatusPage, at.place)),
            section.ready.as_ref().map(|at| (Self::Ready, at.place)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The key, as it is written.
    fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Listing => "listing",
            Self::Php => "php",
            Self::Fastcgi => "fastcgi",
            Self::Proxy => "proxy",
            Self::Redirect => "redirect",
            Self::Respond => "respond",
            Self::Deny => "deny",
            Self::Metrics => "metrics",
            Self::StatusPage => "status_page",
            Self::Ready => "ready",
        }
    }
}

impl Routes<'_, '_> {
    /// The handler of the route. `None`: it has none, or an error was reported.
    pub(super) fn handler(&mut self, section: &keys::Route) -> Option<Handler> {
        let given = HandlerKey::given(section);
        if let [(first, at), (second, place), ..] = &*given {
            self.context
                .problems
                .error(
                    *place,
                    format!("a route has one handler, not {} and {}", first.name(), second.name()),
                )
                .other(*at, "the other one")
                .help("write two routes: the first that concerns a request answers it");
        }
        let key = given.first().map(|(key, _)| *key);
        self.companions_belong(section, key);
        Some(match key? {
            HandlerKey::Static => Handler::Static,
            HandlerKey::Listing => Handler::Listing,
            HandlerKey::Php => self.php(section)?,
            HandlerKey::Fastcgi => self.fastcgi(section)?,
            HandlerKey::Proxy => {
                let proxy = &section.proxy.as_ref()?.value.0;
                self.has_prefix_to_strip(section, proxy);
                self.proxy(proxy)?
            }
            HandlerKey::Redirect => Handler::Redirect {
                status: self.status(section, 302, &[301, 302, 303, 307, 308]),
                to: section.redirect.as_ref()?.value.0.text.clone(),
            },
            HandlerKey::Respond => Handler::Respond {
                status: self.status(section, 200, &[]),
                content_type: section
                    .content_type
                    .as_ref()
                    .map_or("text/plain; charset=utf-8", |at| &at.value.0)
                    .to_owned(),
                body: section.respond.as_ref()?.value.text.clone(),
            },
            HandlerKey::Metrics => Handler::Metrics,
            HandlerKey::Ready => Handler::Ready,
            HandlerKey::StatusPage => self.status_page(section),
            HandlerKey::Deny => {
                Handler::Deny { status: self.status(section, 403, &[403, 404, 410]) }
            }
        })
    }

    /// Reports keys that have no meaning beside this handler.
    fn companions_belong(&mut self, section: &keys::Route, key: Option<HandlerKey>) {
        fn place<T>(at: &At<T>) -> Place {
            at.place
        }

        let handler = key.map(HandlerKey::name);
        let problems = &mut self.context.problems;
        if let (Some(internal), Some(name)) = (&section.internal, handler)
            && !["proxy", "static"].contains(&name)
        {
            problems
                .error(internal.place, format!("internal has no meaning beside {name}"))
                .help(format!(
                    "applications lead requests to files (internal alone) and to proxy: remove {name}"
                ));
        }
        let companions = [
            ("status", section.status.as_ref().map(place), &["redirect", "respond", "deny"][..]),
            ("content_type", section.content_type.as_ref().map(place), &["respond"]),
            ("pool", section.pool.as_ref().map(place), &["php"]),
            ("only_files", section.only_files.as_ref().map(place), &["fastcgi"]),
        ];
        for (key, place, handlers) in companions {
            let Some(place) = place.filter(|_| !section.broken) else { continue };
            if !handler.is_some_and(|handler| handlers.contains(&handler)) {
                let handlers = handlers.join(" or ");
                problems
                    .error(place, format!("{key} has a meaning only beside {handlers}"))
                    .help(format!("add {handlers}, or remove {key}"));
            }
        }
    }

    /// The page shows the requests in flight, so its route must restrict the clients.
    fn status_page(&mut self, section: &keys::Route) -> Handler {
        let is_for_some = section.allow_from.is_some() || section.auth.is_some();
        if let Some(at) = section.status_page.as_ref().filter(|_| !is_for_some) {
            self.context
                .problems
                .error(at.place, "the route does not say who may see the status page")
                .help("add allow_from = [\"127.0.0.1\"], or auth");
        }
        Handler::StatusPage
    }

    /// Reports a prefix that is to be stripped where there is none.
    fn has_prefix_to_strip(&mut self, section: &keys::Route, proxy: &keys::Proxy) {
        if proxy.strip_prefix.value && section.prefix.is_none() && !section.broken {
            self.context
                .problems
                .error(proxy.strip_prefix.place, "the route has no prefix that could be stripped")
                .help("add prefix = \"/app\" to the route, or remove strip_prefix");
        }
    }

    fn proxy(&mut self, section: &keys::Proxy) -> Option<Handler> {
        if let Some(At { value: url, place }) = &section.to
            && let ProxyAddress::Upstream(name) = &url.address
        {
            self.pools.upstream(name, (&url.scheme).into(), *place, self.context);
        }
        self.context.proxy(section, &mut self.proxies)
    }

    fn status(&mut self, section: &keys::Route, usual: u16, allowed: &[u16]) -> u16 {
        let Some(At { value, place }) = &section.status else { return usual };
        let status = u16::try_from(value.0).unwrap_or(usual);
        if !allowed.is_empty() && !allowed.contains(&status) {
            let allowed: Vec<_> = allowed.iter().map(u16::to_string).collect();
            self.context
                .problems
                .error(*place, format!("{status} is not a status for this handler"))
                .help(format!("expected one of {}", allowed.join(", ")));
        }
        status
    }

    fn php(&mut self, section: &keys::Route) -> Option<Handler> {
        let pool = match &section.pool {
            Some(name) => self.pools.number(Some(name), self.context),
            None => self.pool,
        };
        let script = match &section.php.as_ref()?.value {
            Php::Requested => None,
            Php::Script(path) => Some(path.0.clone()),
        };
        Some(Handler::Php { pool: pool?, script })
    }

    fn fastcgi(&mut self, section: &keys::Route) -> Option<Handler> {
        let At { value: AppAddress(address), place } = section.fastcgi.as_ref()?;
        let application = self.attach(address, *place);
        Some(Handler::FastCgi { application, only_files: section.only_files.is_some() })
    }

    /// The number of a FastCGI application among the applications of the site. The application is
    /// added if it is new.
    pub(in crate::resolve) fn attach(&mut self, address: &Address, place: Place) -> usize {
        self.pools.program(address, place, self.context);
        let known = self.attached.iter().position(|attached| attached.address == *address);
        known.unwrap_or_else(|| {
            let matching = Matching::Routes;
            self.attached.push(Attachment { matching, address: address.clone() });
            self.attached.len() - 1
        })
    }
}
