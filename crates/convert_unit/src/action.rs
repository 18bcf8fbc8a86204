//! The actions of steps, as routes.
//!
//! Unit chooses an action once; the routes of Sendoff see the path that earlier ones have made. So
//! a file that is tried, and the action of `fallback`, get paths of their own below `/@unit`, which
//! their routes answer at once. No client reaches them: the first route of the site answers 404.

use super::application;
use super::builder::{Builder, When, error};
use super::conditions::{Conditions, Shape};
use super::json::Node;
use super::matching::{Clients, matched};
use super::text::translate;
use sendoff_convert_document::Section;

/// The deepest chain of routes and of `fallback`.
const MAX_DEPTH: usize = 16;

impl Builder<'_> {
    /// The destination of `pass`.
    pub(super) fn pass(&mut self, node: &Node<'_>) {
        let when = When::Step(vec![Conditions::default()]);
        self.destination(node, &when, &Section::default(), 0);
        if self.routes.last().is_some_and(answers_all) {
            return;
        }
        self.answer(&when, &Section::default(), &|route| error(404, route));
    }

    fn all_steps(&mut self, steps: &Node<'_>, outer: &[Conditions], depth: usize) {
        let (mut is_reached, mut is_ended) = (true, false);
        for step in steps.elements() {
            if is_ended {
                let text = "is not reached: an earlier step answers every request";
                self.site.note(&step.place, format!("{} {text}", step.shown()));
            } else if is_reached {
                is_reached = self.step(&step, outer, depth);
            }
            is_ended |= step.get("match").is_none();
        }
    }

    /// Adds the routes of a step. Returns false if it answers every request.
    fn step(&mut self, step: &Node<'_>, outer: &[Conditions], depth: usize) -> bool {
        self.steps += 1;
        if self.is_too_large() {
            return false;
        }
        let mut found = matched(step, &self.around);
        for other in step.others(&["match", "action"]) {
            found.refuse(&other, "it may be a condition");
        }
        let alternatives = super::conditions::both(outer, &found.alternatives);
        let Some(alternatives) = alternatives else {
            self.refuse(&When::Step(outer.to_vec()), step, "these are too many combinations");
            return false;
        };
        if alternatives.is_empty() {
            return true;
        }
        let takes_all = alternatives.contains(&Conditions::default());
        let when = When::Step(alternatives);
        if let Some((place, why)) = &found.unknown {
            self.refuse_at(&when, place, &format!("{why}; the request is refused"));
            return !takes_all;
        }
        let Some(action) = step.get("action") else { return true };
        if !self.refuse_ambiguous(step, &action, &found.alternatives, outer) {
            self.refuse(&when, step, "these are too many combinations");
            return !takes_all;
        }
        match found.clients {
            Clients::Everyone => self.action(&action, &when, &Section::default(), depth),
            clients => self.of_clients(step, &action, clients, &when, depth),
        }
        !takes_all
    }

    /// Refuses requests with several values of one name, of which only some match. Returns false
    /// if this takes too many routes.
    fn refuse_ambiguous(
        &mut self,
        step: &Node<'_>,
        action: &Node<'_>,
        alternatives: &[Conditions],
        outer: &[Conditions],
    ) -> bool {
        let is_refusal = action.get("return").and_then(|status| status.whole()) == Some(403);
        let ambiguous: Vec<_> = alternatives.iter().flat_map(Conditions::ambiguous).collect();
        if ambiguous.is_empty() || is_refusal {
            return true;
        }
        let Some(conditions) = super::conditions::both(outer, &ambiguous) else { return false };
        let place = step.get("match").map_or_else(|| step.place.clone(), |node| node.place);
        let text = "match: several values of one name, of which only some match, get 403";
        self.add(&When::Step(conditions), Shape::Any, &|route, _| {
            route.note(&place, text);
            error(403, route);
        });
        true
    }

    /// A step for certain clients. A route refuses other clients: it does not leave them to later
    /// routes.
    fn of_clients(
        &mut self,
        step: &Node<'_>,
        action: &Node<'_>,
        clients: Clients,
        when: &When,
        depth: usize,
    ) {
        let status = action.get("return").and_then(|status| status.whole());
        let refuses = status.is_some_and(|status| (400..500).contains(&status));
        let (key, networks) = match (&clients, refuses) {
            (Clients::From(networks), true) => ("deny_from", networks),
            (Clients::NotFrom(networks), true) => ("allow_from", networks),
            (Clients::From(networks), false) => ("allow_from", networks),
            (Clients::NotFrom(networks), false) => ("deny_from", networks),
            (Clients::Everyone, _) => return,
        };
        let mut guard = Section::default();
        guard.set_list(key, networks.clone());
        if refuses {
            if status != Some(403) {
                let text = "return: clients of these addresses get 403";
                guard.note(&action.place, text);
            }
            self.add(when, Shape::Any, &|route, _| route.absorb(guard.clone()));
            return;
        }
        let place = step.get("match").map_or_else(|| step.place.clone(), |node| node.place);
        let text = "source: clients of other addresses get 403, and no later step answers them";
        guard.left_out(&place, text);
        self.add(when, Shape::Any, &|route, _| route.absorb(guard.clone()));
        self.action(action, when, &Section::default(), depth);
    }

    pub(super) fn action(&mut self, action: &Node<'_>, when: &When, outer: &Section, depth: usize) {
        if depth > MAX_DEPTH {
            return self.refuse(when, action, "actions lead to each other too often");
        }
        let mut own = outer.clone();
        self.response_headers(action, &mut own);
        let known = [
            "pass",
            "proxy",
            "share",
            "return",
            "location",
            "rewrite",
            "response_headers",
            "fallback",
            "index",
            "types",
            "chroot",
            "follow_symlinks",
            "traverse_mounts",
        ];
        if let Some(other) = action.others(&known).first() {
            return self.refuse(when, other, "it may refuse requests");
        }
        let when = match action.get("rewrite") {
            None => when.clone(),
            Some(rewrite) => match self.rewritten(&rewrite, when) {
                Some(when) => when,
                None => return,
            },
        };
        if let Some(pass) = action.get("pass") {
            self.destination(&pass, &when, &own, depth + 1);
        } else if let Some(proxy) = action.get("proxy") {
            self.proxy(&proxy, &when, &own);
        } else if let Some(share) = action.get("share") {
            self.share(action, &share, &when, &own, depth);
        } else if let Some(status) = action.get("return") {
            self.returned(action, &status, &when, &own);
        } else {
            self.refuse(&when, action, "it names no answer");
        }
    }

    /// Gives requests another path.
    fn rewritten(&mut self, rewrite: &Node<'_>, when: &When) -> Option<When> {
        let text = rewrite.text().unwrap_or_default();
        let is_path = text.starts_with('/') && !text.contains('?');
        let translated = translate(text, "$path").ok().filter(|_| is_path);
        if translated.is_none() {
            self.refuse(when, rewrite, "only a path with $uri and $host is known");
            return None;
        }
        let mark = self.mark();
        self.add(when, Shape::Any, &|route, path| {
            let target = translate(text, path).unwrap_or_default();
            route.set("rewrite", format!("/@unit/{mark}{target}"));
        });
        Some(When::Marked(mark))
    }

    fn response_headers(&mut self, action: &Node<'_>, own: &mut Section) {
        for (name, value) in action.get("response_headers").iter().flat_map(Node::members) {
            match value.text().map(|text| translate(text, "$path")) {
                Some(Ok(text)) => own.set_in("response_headers", name, text),
                None if value.is_null() => own.set_in("response_headers", name, false),
                Some(Err(variable)) => value.left_out(own, &format!("{variable} is not known")),
                None => value.left_out(own, "it is no text"),
            }
        }
    }

    fn destination(&mut self, pass: &Node<'_>, when: &When, own: &Section, depth: usize) {
        let text = pass.text().unwrap_or_default();
        let parts: Vec<&str> = text.split('/').collect();
        let parts: Vec<String> = parts.iter().map(|part| application::decoded(part)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        if text.contains('$') {
            return self.refuse(when, pass, "the destination depends on the request");
        }
        let config = self.config;
        match parts[..] {
            ["routes"] | ["routes", _] => {
                let routes = config.get("routes");
                let steps = match parts.get(1) {
                    None => routes.filter(Node::is_array),
                    Some(name) => routes.and_then(|routes| routes.get(name)),
                };
                self.route_list(pass, steps, when, own, depth);
            }
            ["applications", name] => self.application(pass, name, None, when, own),
            ["applications", name, target] => {
                self.application(pass, name, Some(target), when, own);
            }
            ["upstreams", name]
                if config.get("upstreams").is_some_and(|all| all.get(name).is_some()) =>
            {
                let url = format!("http://upstream:{}", application::name(name));
                self.answer(when, own, &|route| proxy_to(&url, route));
            }
            _ => self.refuse(when, pass, "nothing has this name"),
        }
    }

    fn route_list(
        &mut self,
        pass: &Node<'_>,
        steps: Option<Node<'_>>,
        when: &When,
        own: &Section,
        depth: usize,
    ) {
        let Some(steps) = steps else { return self.refuse(when, pass, "no routes have this name") };
        let When::Step(outer) = when else {
            return self.refuse(
                when,
                pass,
                "routes behind rewrite or fallback cannot be expressed",
            );
        };
        let name = pass.text().unwrap_or_default().to_owned();
        if depth > MAX_DEPTH || self.open.contains(&name) {
            return self.refuse(when, pass, "routes lead to each other without an end");
        }
        if !own.is_empty() {
            self.add(when, Shape::Any, &|route, _| route.absorb(own.clone()));
        }
        self.open.push(name);
        self.all_steps(&steps, outer, depth);
        self.open.pop();
        if depth > 0 {
            self.answer(when, &Section::default(), &|route| error(404, route));
        }
    }

    fn proxy(&mut self, proxy: &Node<'_>, when: &When, own: &Section) {
        let text = proxy.text().unwrap_or_default();
        if !text.starts_with("http://") || text.contains('$') {
            return self.refuse(when, proxy, "it is no address");
        }
        let (host, port) = text["http://".len()..].rsplit_once(':').unwrap_or((text, ""));
        let is_complete = host == "unix" || port.parse::<u16>().is_ok() || host.is_empty();
        if !is_complete {
            return self.refuse(when, proxy, "it has no port");
        }
        self.answer(when, own, &|route| proxy_to(text, route));
    }

    fn returned(&mut self, action: &Node<'_>, status: &Node<'_>, when: &When, own: &Section) {
        let Some(code @ 200..=599) = status.whole() else {
            return self.refuse(when, status, "no answer has this status");
        };
        let location = action.get("location");
        if code >= 400 {
            return self.answer(when, own, &|route| error(code, route));
        }
        let Some(location) = location.filter(|_| matches!(code, 301 | 302 | 303 | 307 | 308))
        else {
            return self.answer(when, own, &|route| {
                route.set("respond", "");
                if code != 200 {
                    route.set("status", code);
                }
            });
        };
        let text = location.text().unwrap_or_default();
        let is_target = text.starts_with('/') || text.contains("://");
        if translate(text, "$path").is_err() || !is_target {
            return self.refuse(when, &location, "its target is not known");
        }
        let is_marked = matches!(when, When::Marked(_));
        self.add(when, Shape::Any, &|route, path| {
            route.absorb(own.clone());
            let path = if is_marked { path } else { "$path" };
            route.set("redirect", translate(text, path).unwrap_or_default());
            route.set("status", code);
        });
    }
}

/// True if the route answers every request.
fn answers_all(route: &Section) -> bool {
    const CONDITIONS: [&str; 6] = ["path", "prefix", "match", "header", "query", "method"];
    const HANDLERS: [&str; 6] = ["fastcgi", "php", "proxy", "redirect", "respond", "static"];
    HANDLERS.iter().any(|key| route.has(key)) && !CONDITIONS.iter().any(|key| route.has(key))
}

/// Passes requests on as Unit does: with the client's host, and without fields about the client.
fn proxy_to(url: &str, route: &mut Section) {
    route.set_in("proxy", "to", url);
    route.set_in("proxy", "forwarded", "off");
    route.set_in("proxy", "upgrade", false);
}
