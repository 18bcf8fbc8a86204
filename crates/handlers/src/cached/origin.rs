//! The application that answers if no kept page can.

use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_page_cache::Key;
use sendoff_site_files::router::{Script, Upstream};

use crate::application::proxy::{self, ProxyTarget};
use crate::application::script;
use crate::context::Context;
use crate::outcome::Outcome;

/// The application that answers if no kept page can.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OriginApplication<'a> {
    Script(&'a Script),
    /// An application that speaks HTTP, SCGI or AJP.
    Proxy(ProxyTarget),
}

impl OriginApplication<'_> {
    /// The key of a request, whose page depends on these variables of `.htaccess` files.
    pub(super) fn key(
        self,
        context: &Context<'_>,
        site: &str,
        environment: &[(Vec<u8>, Vec<u8>)],
    ) -> Key {
        let Context { services, request, effects, .. } = *context;
        let number = context.site.number;
        match self {
            Self::Script(Script { filename, name, path_info, upstream }) => {
                let upstream = match *upstream {
                    Upstream::Workers(pool) => {
                        ["pool:", &services.config.pools[pool].name].concat()
                    }
                    Upstream::Application(application) => {
                        services.config.sites[number].fastcgi[application].address.to_string()
                    }
                };
                let answering = [&filename[..], name, path_info, upstream.as_bytes()];
                Key::with_environment(site, request, &answering, effects, environment)
            }
            Self::Proxy(ProxyTarget { application, prefix }) => {
                let gateway = &services.gateways[number][application];
                let (prefix, form) = (prefix.to_le_bytes(), gateway.form().to_le_bytes());
                // No script has the empty name.
                let answering = [b"", gateway.name().as_bytes(), &prefix[..], &form[..]];
                Key::with_environment(site, request, &answering, effects, environment)
            }
        }
    }

    /// The name of the cookie that binds clients to the application's hosts.
    pub(super) fn cookie_name<'c>(self, context: &Context<'c>) -> Option<&'c str> {
        let Context { services, site, .. } = context;
        match self {
            Self::Script(Script { upstream: Upstream::Workers(_), .. }) => None,
            Self::Script(Script { upstream: Upstream::Application(number), .. }) => {
                services.attached[site.number][*number].cookie_name()
            }
            Self::Proxy(ProxyTarget { application, .. }) => {
                services.gateways[site.number][application].hosts().cookie_name()
            }
        }
    }

    /// Lets the application answer.
    ///
    /// # Errors
    /// The client has gone, or its response was cut short after it had begun.
    pub(super) async fn respond(
        self,
        context: &Context<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Cut> {
        match self {
            Self::Script(script) => script::respond(context, script, sink).await,
            // On the heap, so that the future of a request for a script reserves no room for it.
            Self::Proxy(proxied) => Box::pin(proxy::respond(context, proxied, sink)).await,
        }
    }
}
