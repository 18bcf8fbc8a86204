//! Answers without an application: `respond`, `error`, `abort` and `metrics`.

use super::body::{Answers, Builder, Scope, Step};
use super::conditions::{Clients, Requests, Seen};
use super::text::{Around, translate};

impl Builder<'_> {
    /// `respond [TEXT] [STATUS] { body TEXT, close }`
    pub(super) fn respond(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        let is_status = |word: &str| word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit());
        let (text, status) = match &step.words[..] {
            [] => ("", "200"),
            [status] if is_status(status) => ("", *status),
            [text] => (*text, "200"),
            [text, status, ..] => (*text, *status),
        };
        let mut text = text;
        for option in step.directive.inner() {
            match option.name.as_str() {
                "body" => text = option.word(),
                "close" => {}
                _ => self.site.left_out(&option.place, format!("{} has no equal", option.text())),
            }
        }
        let status = status.parse::<i64>().ok().filter(|code| (200..600).contains(code));
        let path = if scope.mark.is_some() { "$1" } else { "$path" };
        let around = Around { path, is_rewritten: true, requests: &step.requests };
        let (Ok(text), Some(status)) = (translate(text, &around), status) else {
            self.refuse(step, scope, "its text has placeholders, or its status is not known");
            return step.answers();
        };
        if status >= 400 && step.requests.clients != Clients::Everyone {
            self.refuse_clients(step, scope, status);
            return step.answers();
        }
        let is_json = text.starts_with('{') && text.ends_with('}');
        self.answer(step, scope, &|route, _| {
            route.set("respond", text.clone());
            if status != 200 {
                route.set("status", status);
            }
            if is_json {
                route.set("content_type", "application/json");
            }
        })
    }

    /// `error [TEXT] [STATUS]`
    pub(super) fn error(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        let mut status = step.words.iter().rev().filter_map(|word| word.parse::<i64>().ok());
        let status = status.find(|code| (400..600).contains(code)).unwrap_or(500);
        self.refuse_clients_or_all(step, scope, status)
    }

    /// `abort`
    pub(super) fn abort(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        let text = "abort: the client gets 403, Caddy closes the connection";
        self.site.note(&step.directive.place, text);
        self.refuse_clients_or_all(step, scope, 403)
    }

    pub(super) fn metrics(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        self.answer(step, scope, &|route, _| route.set("metrics", true))
    }

    fn refuse_clients_or_all(
        &mut self,
        step: &Step<'_>,
        scope: &Scope<'_>,
        status: i64,
    ) -> Answers {
        if step.requests.clients != Clients::Everyone {
            self.refuse_clients(step, scope, status);
            return step.answers();
        }
        self.add(&step.requests, scope.mark, Seen::Whole, &|route, _| {
            route.set("respond", "");
            route.set("status", status);
        });
        step.answers()
    }

    /// Refuses the clients of a step; all others go on.
    fn refuse_clients(&mut self, step: &Step<'_>, scope: &Scope<'_>, status: i64) {
        if status != 403 {
            let text = format!("{}: the refused clients get 403", step.directive.text());
            self.site.note(&step.directive.place, text);
        }
        let clients = match &step.requests.clients {
            Clients::Everyone => Clients::Everyone,
            Clients::From(networks) if networks.is_empty() => Clients::From(Vec::new()),
            Clients::From(networks) => Clients::NotFrom(networks.clone()),
            Clients::NotFrom(networks) => Clients::From(networks.clone()),
        };
        let requests = Requests { clients, ..step.requests.clone() };
        self.add(&requests, scope.mark, Seen::Whole, &|_, _| {});
    }
}
