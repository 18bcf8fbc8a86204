//! The state of a request while its rules are applied.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;
use std::time::SystemTime;

use crate::budget::Budget;
use crate::reason::{DependsOn, Reason};
use crate::request::{Fields, FileInfo, Look, Request, Site};

/// The refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) why: Option<Reason>,
}

impl Refusal {
    /// A refusal without a rule.
    pub(crate) fn status(status: u16) -> Self {
        Self { status, why: None }
    }
}

/// Variables of a request, as scripts see them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Variables(pub(crate) Vec<(Vec<u8>, Vec<u8>)>);

impl Variables {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }

    pub(crate) fn set(&mut self, name: &[u8], value: Vec<u8>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_vec(), value)),
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The variables of the request after an internal redirect.
    pub(crate) fn redirected(&self) -> Self {
        let rename = |(name, value): &(Vec<u8>, Vec<u8>)| {
            ([b"REDIRECT_", name.as_slice()].concat(), value.clone())
        };
        Self(self.0.iter().map(rename).collect())
    }
}

/// One run of the rules: of the request itself, of an internal redirect, or of a look-up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pass {
    /// The path, decoded.
    pub(crate) path: Vec<u8>,
    pub(crate) query: Option<Vec<u8>>,
    /// The path of a file or folder, or the first part of the path that does not exist.
    pub(crate) file: Vec<u8>,
    /// The part of the path behind the file.
    pub(crate) path_info: Vec<u8>,
    /// The object at `file`.
    pub(crate) found: Option<FileInfo>,
    /// The prefix and the folder of the alias; without one, empty and the site's root.
    pub(crate) prefix: Vec<u8>,
    pub(crate) folder: Vec<u8>,
    pub(crate) variables: Variables,
    pub(crate) user: Option<Vec<u8>>,
    /// Request fields that decided, for `Vary`.
    pub(crate) vary: Vec<Vec<u8>>,
    /// The nesting of look-ups; zero for the request itself.
    pub(crate) depth: usize,
    /// The type and the handler that a rewrite rule forces.
    pub(crate) forced_type: Option<Vec<u8>>,
    pub(crate) forced_handler: Option<Vec<u8>>,
    /// A rule had the flag END.
    pub(crate) rewriting_ended: bool,
    /// Response fields by rewrite rules: cookies.
    pub(crate) cookies: Vec<Vec<u8>>,
    /// The status that the response will have, for error documents.
    pub(crate) status: u16,
}

impl Pass {
    /// Adds request fields that decided.
    pub(crate) fn depend_on(&mut self, fields: Vec<Vec<u8>>) {
        for field in fields {
            let is_token = field.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',');
            if is_token && !self.vary.iter().any(|known| known.eq_ignore_ascii_case(&field)) {
                self.vary.push(field);
            }
        }
    }
}

/// The result of a look-up.
pub(crate) struct LookedUp {
    pub(crate) status: u16,
    pub(crate) pass: Pass,
}

/// Requests within a request.
pub(crate) trait LookUps {
    /// Runs the rules for another path on behalf of a pass.
    fn look_up(&self, context: &Context<'_>, path: &[u8], pass: &Pass) -> LookedUp;
}

/// The constant inputs of an evaluation, its budget, and the record of the inputs that it read.
pub(crate) struct Context<'a> {
    pub(crate) site: &'a Site<'a>,
    pub(crate) request: &'a Request<'a>,
    pub(crate) files: &'a dyn Look,
    /// Breaks the cycle between this module and the evaluation, which implements the look-ups.
    pub(crate) look_ups: &'a dyn LookUps,
    pub(crate) budget: Budget<'a>,
    pub(crate) looked_at: RefCell<DependsOn>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        site: &'a Site<'a>,
        request: &'a Request<'a>,
        files: &'a dyn Look,
        look_ups: &'a dyn LookUps,
    ) -> Self {
        let (budget, looked_at) = (Budget::new(files), RefCell::default());
        Self { site, request, files, look_ups, budget, looked_at }
    }

    /// The value of a request field.
    pub(crate) fn field(&self, name: &[u8]) -> Option<Cow<'a, [u8]>> {
        let mut looked_at = self.looked_at.borrow_mut();
        let is_known = |known: &Vec<u8>| known.eq_ignore_ascii_case(name);
        if !looked_at.fields.iter().any(is_known) {
            looked_at.fields.push(name.to_vec());
        }
        self.request.fields.get(name)
    }

    /// All request fields.
    pub(crate) fn fields(&self) -> &'a dyn Fields {
        self.looked_at.borrow_mut().more = true;
        self.request.fields
    }

    /// The address of the client.
    pub(crate) fn client(&self) -> IpAddr {
        self.looked_at.borrow_mut().client = true;
        self.request.client.ip()
    }

    /// The port of the client.
    pub(crate) fn client_port(&self) -> u16 {
        self.looked_at.borrow_mut().more = true;
        self.request.client.port()
    }

    /// Records that a file's size was read: its changes are not reported.
    pub(crate) fn looks_at_size(&self) {
        self.looked_at.borrow_mut().more = true;
    }

    /// The time of the request.
    pub(crate) fn now(&self) -> SystemTime {
        self.looked_at.borrow_mut().more = true;
        self.request.now
    }
}
