//! Access: `Require` and its groups, and the older `Order`, `Allow`, `Deny`, `Satisfy`.

use std::sync::Arc;

use sendoff_apache_expression::Network;

use crate::budget::TooCostly;
use crate::expression::{Evaluation, Expression, Template};
use crate::problem::Problem;
use crate::state::{Context, Pass};
use crate::syntax;
use crate::text::{self, lossy};
use crate::variables;

/// The methods that `<Limit>` or `<LimitExcept>` names.
#[derive(Debug, Clone, Default)]
pub(crate) enum Methods {
    #[default]
    All,
    Only(Arc<[Vec<u8>]>),
    Except(Arc<[Vec<u8>]>),
}

impl Methods {
    /// The methods of a `<Limit>` within these methods.
    ///
    /// # Errors
    /// Apache refuses the section: it names no method, TRACE or an unknown method, leaves no
    /// method, or leaves all.
    pub(crate) fn limit(&self, names: &[Vec<u8>]) -> Result<Self, &'static str> {
        if names.iter().any(|name| name == b"TRACE") {
            return Err("<Limit> cannot name TRACE");
        }
        let names = distinct(names)?;
        let (left, all) = match self {
            Self::All => (names, usize::MAX),
            Self::Only(outer) => (without(&names, |name| !outer.contains(name)), outer.len()),
            Self::Except(outer) => (without(&names, |name| outer.contains(name)), usize::MAX),
        };
        Self::only(left, all)
    }

    /// The methods of a `<LimitExcept>` within these methods.
    ///
    /// # Errors
    /// As for [`limit`](Self::limit), but the section may name TRACE.
    pub(crate) fn limit_except(&self, names: &[Vec<u8>]) -> Result<Self, &'static str> {
        let names = distinct(names)?;
        match self {
            Self::All => Ok(Self::Except(names.into())),
            Self::Only(outer) => {
                Self::only(without(outer, |name| names.contains(name)), outer.len())
            }
            Self::Except(outer) => match without(&names, |name| outer.contains(name)) {
                more if more.is_empty() => Err(LEAVES_ALL),
                more => Ok(Self::Except([&outer[..], &more].concat().into())),
            },
        }
    }

    /// The methods that are left of a number of them.
    fn only(left: Vec<Vec<u8>>, all: usize) -> Result<Self, &'static str> {
        match left.len() {
            0 => Err("the section leaves no method of the section around it"),
            len if len == all => Err(LEAVES_ALL),
            _ => Ok(Self::Only(left.into())),
        }
    }

    /// True if a method is among them. `GET` includes `HEAD`.
    pub(crate) fn contain(&self, method: &[u8]) -> bool {
        let method = as_get(method);
        let named = |names: &[Vec<u8>]| names.iter().any(|name| name == method);
        match self {
            Self::All => true,
            Self::Only(names) => named(names),
            Self::Except(names) => !named(names),
        }
    }
}

const LEAVES_ALL: &str = "the section leaves all methods of the section around it";

/// `GET` in place of `HEAD`, which Apache does not tell apart.
fn as_get(method: &[u8]) -> &[u8] {
    if method == b"HEAD" { b"GET" } else { method }
}

/// The methods that Apache knows without a module that registers more. In a folder, `<Limit>` and
/// `<LimitExcept>` may name no other ones.
const KNOWN: [&str; 27] = [
    "GET",
    "HEAD",
    "PUT",
    "POST",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "VERSION-CONTROL",
    "CHECKOUT",
    "UNCHECKOUT",
    "CHECKIN",
    "UPDATE",
    "LABEL",
    "REPORT",
    "MKWORKSPACE",
    "MKACTIVITY",
    "BASELINE-CONTROL",
    "MERGE",
];

/// The methods that a section names, each once.
fn distinct(names: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, &'static str> {
    if names.iter().any(|name| !KNOWN.iter().any(|known| known.as_bytes() == name)) {
        return Err("the section names an unknown method; names of methods are in capitals");
    }
    let mut names: Vec<_> = names.iter().map(|name| as_get(name).to_vec()).collect();
    names.sort();
    names.dedup();
    if names.is_empty() { Err("the section wants methods") } else { Ok(names) }
}

fn without(names: &[Vec<u8>], drops: impl Fn(&Vec<u8>) -> bool) -> Vec<Vec<u8>> {
    names.iter().filter(|name| !drops(name)).cloned().collect()
}

/// `Order`, `Allow`, `Deny` and `Satisfy` of a section. They replace the directives of the folders
/// above.
#[derive(Debug, Default)]
pub(crate) struct HostAccess {
    /// The line of the last directive.
    pub(crate) line: usize,
    order: Vec<(Methods, Order)>,
    allow: Vec<(Methods, ListedHost)>,
    deny: Vec<(Methods, ListedHost)>,
    satisfy: Vec<(Methods, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    DenyAllow,
    AllowDeny,
}

#[derive(Debug)]
enum ListedHost {
    All,
    Network(Network),
    Variable(Vec<u8>),
    NoVariable(Vec<u8>),
}

impl ListedHost {
    fn parse(text: &[u8]) -> Result<Self, Problem> {
        if text.eq_ignore_ascii_case(b"all") {
            return Ok(Self::All);
        }
        if text::starts_with_ignore_case(text, b"env=!") {
            return Ok(Self::NoVariable(text[5..].to_vec()));
        }
        if text::starts_with_ignore_case(text, b"env=") {
            return Ok(Self::Variable(text[4..].to_vec()));
        }
        Network::parse(text).map(Self::Network).map_err(|_| {
            let text = lossy(text);
            Problem::Refused(format!("{text:?} is a host name; write addresses or networks"))
        })
    }

    fn is(&self, context: &Context<'_>, pass: &Pass) -> bool {
        match self {
            Self::All => true,
            Self::Network(network) => network.contains(context.client()),
            Self::Variable(name) => pass.variables.get(name).is_some(),
            Self::NoVariable(name) => pass.variables.get(name).is_none(),
        }
    }
}

impl HostAccess {
    /// `Order ORDER`
    pub(crate) fn set_order(&mut self, methods: &Methods, text: &[u8]) -> Result<(), Problem> {
        let order = match text.to_ascii_lowercase().as_slice() {
            b"deny,allow" => Order::DenyAllow,
            // Access only for clients that are allowed and not denied: the same as `Allow,Deny`.
            b"allow,deny" | b"mutual-failure" => Order::AllowDeny,
            other => return Err(format!("Order does not know {:?}", lossy(other)).into()),
        };
        self.order.push((methods.clone(), order));
        Ok(())
    }

    /// `Allow from WHO...`, `Deny from WHO...`
    pub(crate) fn add(
        &mut self,
        allow: bool,
        methods: &Methods,
        words: &[Vec<u8>],
    ) -> Result<(), Problem> {
        let [from, hosts @ ..] = words else { return Err("\"from\" is missing".into()) };
        if !from.eq_ignore_ascii_case(b"from") || hosts.is_empty() {
            return Err("\"from\" and a host are expected".into());
        }
        for host in hosts {
            let who = (methods.clone(), ListedHost::parse(host)?);
            if allow { self.allow.push(who) } else { self.deny.push(who) }
        }
        Ok(())
    }

    /// `Satisfy all|any`
    pub(crate) fn set_satisfy(&mut self, methods: &Methods, text: &[u8]) -> Result<(), Problem> {
        let any = match text.to_ascii_lowercase().as_slice() {
            b"all" => false,
            b"any" => true,
            _ => return Err("Satisfy wants \"all\" or \"any\"".into()),
        };
        self.satisfy.push((methods.clone(), any));
        Ok(())
    }

    /// True if the directives let the client in.
    pub(crate) fn allow(&self, context: &Context<'_>, pass: &Pass) -> bool {
        let method = context.request.method;
        let listed = |list: &[(Methods, ListedHost)]| {
            list.iter().any(|(methods, who)| methods.contain(method) && who.is(context, pass))
        };
        match last(&self.order, method).unwrap_or(Order::DenyAllow) {
            Order::DenyAllow => listed(&self.allow) || !listed(&self.deny),
            Order::AllowDeny => listed(&self.allow) && !listed(&self.deny),
        }
    }

    /// True if either the address or the user suffices (`Satisfy any`).
    pub(crate) fn any_suffices(&self, method: &[u8]) -> bool {
        last(&self.satisfy, method).unwrap_or(false)
    }
}

fn last<T: Copy>(list: &[(Methods, T)], method: &[u8]) -> Option<T> {
    list.iter().rev().find(|(methods, _)| methods.contain(method)).map(|(_, value)| *value)
}

/// The way in which the parts of a group combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    /// `<RequireAll>`
    All,
    /// `<RequireAny>`, and requirements outside of groups.
    Any,
    /// `<RequireNone>`
    None,
}

/// A group of requirements.
#[derive(Debug)]
pub(crate) struct Group {
    /// The line at which the group begins.
    pub(crate) line: usize,
    pub(crate) counting: Counting,
    pub(crate) parts: Vec<Requirement>,
}

/// A requirement.
#[derive(Debug)]
pub(crate) enum Requirement {
    Group(Group),
    Check { check: Check, negated: bool, methods: Methods },
}

/// The condition of a requirement.
#[derive(Debug)]
pub(crate) enum Check {
    Always(bool),
    Networks(Vec<Network>),
    /// The client is on this machine.
    Local,
    Methods(Vec<Vec<u8>>),
    Variables(Vec<Vec<u8>>),
    Expression(Expression),
    AnyUser,
    Users(Vec<Template>),
    /// Members of a group in `AuthGroupFile`.
    Groups(Vec<Template>),
}

/// The result of requirements for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessResult {
    Granted,
    Denied,
    /// A user is required, and the request has none yet.
    UserWanted,
    /// No requirement applies, or those that apply can only refuse and do not.
    Neutral,
}

impl AccessResult {
    /// The result if both have to let the client in (`<RequireAll>`, `AuthMerging And`).
    pub(crate) fn and(self, other: Self) -> Self {
        self.first_of(other, [Self::Denied, Self::UserWanted, Self::Granted])
    }

    /// The result if one of them suffices (`<RequireAny>`, `AuthMerging Or`).
    pub(crate) fn or(self, other: Self) -> Self {
        self.first_of(other, [Self::Granted, Self::UserWanted, Self::Denied])
    }

    fn first_of(self, other: Self, order: [Self; 3]) -> Self {
        let found = order.into_iter().find(|result| [self, other].contains(result));
        found.unwrap_or(Self::Neutral)
    }
}

impl Check {
    /// Parses the arguments of a `Require`.
    ///
    /// # Errors
    /// It is not understood.
    pub(crate) fn parse(kind: &[u8], rest: &[u8]) -> Result<Self, Problem> {
        let words = || syntax::words(rest);
        let some = |words: Vec<Vec<u8>>, what: &str| {
            if words.is_empty() {
                Err(Problem::Broken(format!("Require wants {what}")))
            } else {
                Ok(words)
            }
        };
        Ok(match kind.to_ascii_lowercase().as_slice() {
            b"all" => match rest.trim_ascii().to_ascii_lowercase().as_slice() {
                b"granted" => Self::Always(true),
                b"denied" => Self::Always(false),
                _ => return Err("Require all wants \"granted\" or \"denied\"".into()),
            },
            b"ip" => {
                let words = some(words(), "an address")?;
                let networks = words.iter().map(|word| Network::parse(word));
                Self::Networks(networks.collect::<Result<_, _>>()?)
            }
            b"local" => Self::Local,
            b"method" => Self::Methods(some(words(), "a method")?),
            b"env" => Self::Variables(some(words(), "a variable")?),
            b"expr" => {
                let mut rest = rest.trim_ascii();
                let quoted = syntax::word(&mut { rest });
                if matches!(rest.first(), Some(b'"' | b'\'')) {
                    let mut after = rest;
                    let _ = syntax::word(&mut after);
                    if after.is_empty() {
                        let quoted = quoted.unwrap_or_default();
                        return expression(&quoted);
                    }
                }
                rest = rest.trim_ascii();
                return expression(rest);
            }
            b"valid-user" => Self::AnyUser,
            b"user" => {
                let names = some(words(), "a user")?;
                let names = names.iter().map(|name| Template::parse(name));
                Self::Users(names.collect::<Result<_, _>>().map_err(Problem::Refused)?)
            }
            b"group" => {
                let names = some(words(), "a group")?;
                let names = names.iter().map(|name| Template::parse(name));
                Self::Groups(names.collect::<Result<_, _>>().map_err(Problem::Refused)?)
            }
            b"host" | b"forward-dns" => {
                let why = "names of clients are not looked up; write addresses with Require ip";
                return Err(Problem::Refused(why.to_owned()));
            }
            other => {
                let what = lossy(other);
                return Err(Problem::Refused(format!("Require {what} is not supported")));
            }
        })
    }

    fn verdict(
        &self,
        context: &Context<'_>,
        pass: &Pass,
        groups: Option<&[u8]>,
        vary: &mut Vec<Vec<u8>>,
    ) -> Result<AccessResult, TooCostly> {
        context.budget.time()?;
        let request = context.request;
        let holds = match self {
            Self::Always(granted) => *granted,
            Self::Networks(networks) => {
                networks.iter().any(|network| network.contains(context.client()))
            }
            Self::Local => {
                let client = context.client().to_canonical();
                client.is_loopback() || client == request.server.ip().to_canonical()
            }
            Self::Methods(names) => {
                let method = if request.method == b"HEAD" { b"GET" } else { request.method };
                names.iter().any(|name| name == method || name == request.method)
            }
            Self::Variables(names) => names.iter().any(|name| pass.variables.get(name).is_some()),
            Self::Expression(expression) => {
                let mut evaluation = Evaluation::new(context, pass);
                let holds = evaluation.holds(expression)?;
                vary.append(&mut evaluation.vary);
                return Ok(match holds {
                    true => AccessResult::Granted,
                    // The result may depend on the user, who is not known yet.
                    false if pass.user.is_none() && expression.names_user() => {
                        AccessResult::UserWanted
                    }
                    false => AccessResult::Denied,
                });
            }
            Self::AnyUser if pass.user.is_none() => return Ok(AccessResult::UserWanted),
            Self::Users(_) | Self::Groups(_) if pass.user.is_none() => {
                return Ok(AccessResult::UserWanted);
            }
            Self::Groups(names) => {
                let file = groups.and_then(|file| context.files.groups(file));
                let file = file.unwrap_or_default();
                let mut evaluation = Evaluation::new(context, pass);
                let user = pass.user.as_deref().unwrap_or_default();
                names.iter().any(|name| is_member(&file, &name.expand(&mut evaluation), user))
            }
            Self::AnyUser => true,
            Self::Users(names) => {
                let mut evaluation = Evaluation::new(context, pass);
                names.iter().any(|name| Some(name.expand(&mut evaluation)) == pass.user)
            }
        };
        Ok(if holds { AccessResult::Granted } else { AccessResult::Denied })
    }
}

/// True if a file with lines `GROUP: USER...` names a user as a member of a group.
fn is_member(file: &[u8], group: &[u8], user: &[u8]) -> bool {
    let lines = file.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| line.first() != Some(&b'#')).any(|line| {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
        line[..colon].trim_ascii_end() == group
            && syntax::words(&line[colon + 1..]).iter().any(|name| name == user)
    })
}

fn expression(text: &[u8]) -> Result<Check, Problem> {
    Expression::parse(text).map(Check::Expression).map_err(Problem::Refused)
}

impl Group {
    /// The implicit group of the requirements outside of groups.
    pub(crate) fn any(line: usize) -> Self {
        Self { line, counting: Counting::Any, parts: Vec::new() }
    }

    /// The verdict of the group on a request. Adds the request fields that it reads to `vary`.
    /// `groups` is the file of `AuthGroupFile`.
    pub(crate) fn verdict(
        &self,
        context: &Context<'_>,
        pass: &Pass,
        groups: Option<&[u8]>,
        vary: &mut Vec<Vec<u8>>,
    ) -> Result<AccessResult, TooCostly> {
        let mut found = AccessResult::Neutral;
        for part in &self.parts {
            let verdict = part.verdict(context, pass, groups, vary)?;
            let (next, last) = match self.counting {
                Counting::All => (found.and(verdict), AccessResult::Denied),
                Counting::Any | Counting::None => (found.or(verdict), AccessResult::Granted),
            };
            found = next;
            if found == last {
                break;
            }
        }
        Ok(if self.counting == Counting::None { negate(found) } else { found })
    }

    /// True if a requirement is for this method.
    pub(crate) fn concerns(&self, method: &[u8]) -> bool {
        self.parts.iter().any(|part| match part {
            Requirement::Group(group) => group.concerns(method),
            Requirement::Check { methods, .. } => methods.contain(method),
        })
    }

    /// True if requirements that only refuse may be in the group. In other groups Apache rejects
    /// them, because they never grant access.
    pub(crate) fn takes_negative(&self) -> bool {
        self.counting == Counting::All
    }
}

/// Negates a verdict. A negated requirement can deny but not grant: without a refusal it is
/// neutral.
fn negate(verdict: AccessResult) -> AccessResult {
    match verdict {
        AccessResult::Granted => AccessResult::Denied,
        _ => AccessResult::Neutral,
    }
}

impl Requirement {
    fn verdict(
        &self,
        context: &Context<'_>,
        pass: &Pass,
        groups: Option<&[u8]>,
        vary: &mut Vec<Vec<u8>>,
    ) -> Result<AccessResult, TooCostly> {
        match self {
            Self::Group(group) => group.verdict(context, pass, groups, vary),
            Self::Check { methods, .. } if !methods.contain(context.request.method) => {
                Ok(AccessResult::Neutral)
            }
            Self::Check { check, negated, .. } => {
                let verdict = check.verdict(context, pass, groups, vary)?;
                Ok(if *negated { negate(verdict) } else { verdict })
            }
        }
    }
}

/// `AuthType`, `AuthName`, `AuthUserFile`, `AuthGroupFile`: each replaces the same directive of the
/// folders above.
#[derive(Debug, Default)]
pub(crate) struct Authentication {
    /// `AuthType`: true for `Basic`, false for `None`.
    pub(crate) basic: Option<bool>,
    pub(crate) realm: Option<Vec<u8>>,
    pub(crate) users: Option<Vec<u8>>,
    pub(crate) groups: Option<Vec<u8>>,
}

/// The name of the client's address, for the log.
pub(crate) fn client(context: &Context<'_>) -> String {
    lossy(&variables::address(context.client()))
}

/// True if a setting has a value that means "no".
pub(crate) fn is_off(value: &[u8]) -> bool {
    matches!(value.to_ascii_lowercase().as_slice(), b"" | b"0" | b"off" | b"no" | b"false")
}
