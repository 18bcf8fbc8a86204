//! The decision of the `.htaccess` files about a request, in the form in which the server applies it
//! to the response.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use http::StatusCode;
use sendoff_htaccess as apache;
use sendoff_htaccess::{Handler, Outcome, RequestedFile};
use sendoff_message::response::Field;

use crate::field_change::{Action, FieldChange, FieldChanges};

/// The user whose password a client has shown.
#[derive(Debug, Clone)]
pub struct User {
    /// The file with the password.
    pub file: PathBuf,
    /// The user's name.
    pub name: Vec<u8>,
}

/// The decision of the files about a request, which several requests may share.
#[derive(Debug)]
pub struct HtaccessDecision {
    outcome: Outcome,
    user: Option<User>,
    /// Changes of the fields of a static file that follow from its name.
    of_file: Option<Rc<FieldChanges>>,
    charset: Option<Bytes>,
    php_value: Option<Vec<u8>>,
    fixed: Option<Fixed>,
}

/// Changes of heads that are the same for every response.
#[derive(Debug)]
struct Fixed {
    always: FieldChanges,
    /// Changes of responses that a file or a script makes.
    usual: FieldChanges,
}

impl HtaccessDecision {
    /// `user`: the user whose password the client has shown.
    pub(crate) fn new(outcome: Outcome, user: Option<User>) -> Self {
        let mut decision = Self {
            user,
            of_file: None,
            charset: None,
            php_value: None,
            fixed: outcome.response.fixed().map(Fixed::new),
            outcome,
        };
        if let apache::Answer::Serve(target) = &decision.outcome.answer {
            let (changes, charset) = of_file(target);
            decision.of_file = (!changes.is_empty()).then(|| Rc::new(FieldChanges::new(changes)));
            decision.charset = charset;
        }
        if !decision.outcome.php.is_empty() {
            let lines = decision.outcome.php.iter().flat_map(php_ini_line);
            decision.php_value = Some(lines.collect());
        }
        decision
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Changes of the fields of the static file that answers.
    pub(crate) fn of_file(&self) -> Option<&Rc<FieldChanges>> {
        self.of_file.as_ref()
    }

    /// The charset of a static file whose type is text and has no charset.
    pub(crate) fn charset(&self) -> Option<&Bytes> {
        self.charset.as_ref()
    }

    /// Settings of PHP, as lines of php.ini.
    pub(crate) fn php_value(&self) -> Option<&Vec<u8>> {
        self.php_value.as_ref()
    }

    /// True if the files change heads.
    pub fn changes_heads(&self) -> bool {
        !self.outcome.response.is_empty()
    }

    /// True if the files set, change or remove the response fields of this name.
    pub fn concerns_field(&self, name: &str) -> bool {
        self.outcome.response.concern(name)
    }

    /// Applies the changes if they are the same for every response. Returns false if they are not.
    pub(crate) fn change(&self, by_server: bool, fields: &mut Vec<Field>) -> bool {
        let Some(Fixed { always, usual }) = &self.fixed else { return false };
        // Several `Vary` fields would have to be merged into one.
        if fields.iter().any(|field| field.is("Vary")) {
            return false;
        }
        if !by_server {
            usual.apply(fields);
        }
        if !always.is_empty() {
            let mut first = Vec::new();
            always.apply(&mut first);
            first.append(fields);
            *fields = first;
        }
        true
    }

    /// The document that the files set for an error status.
    pub fn error_document(&self, status: StatusCode) -> Option<&apache::ErrorDocument> {
        self.outcome.error_document(status.as_u16())
    }
}

impl Fixed {
    fn new(changes: Vec<apache::HeadChange>) -> Self {
        let (mut always, mut usual) = (Vec::new(), Vec::new());
        for apache::HeadChange { always: is_always, action, name, value } in changes {
            let action = match action {
                apache::HeadAction::Set => Action::Set,
                apache::HeadAction::Add => Action::Add,
                apache::HeadAction::Unset => Action::Remove,
            };
            let change = FieldChange { action, field: Field::Own(name.into(), value.into()) };
            if is_always { always.push(change) } else { usual.push(change) }
        }
        Self { always: FieldChanges::new(always), usual: FieldChanges::new(usual) }
    }
}

/// Consequences of a static file's name: changes of the response's fields, and the charset.
fn of_file(target: &RequestedFile) -> (Vec<FieldChange>, Option<Bytes>) {
    let (mut changes, mut default_charset) = (Vec::new(), None);
    let set = |name, value: &[u8]| FieldChange {
        action: Action::Set,
        field: Field::new(name, value.to_vec()),
    };
    let remove = |name| FieldChange { action: Action::Remove, field: Field::new(name, "") };
    if !target.encoding.is_empty() {
        changes.push(set("Content-Encoding", &target.encoding));
    }
    if !target.language.is_empty() {
        changes.push(set("Content-Language", &target.language));
    }
    if target.handler == Handler::Static {
        match (&target.content_type, &target.charset) {
            (Some(Some(own)), charset) => {
                let charset = charset.iter().flat_map(|c| [b"; charset=", &c[..]].concat());
                let own: Vec<u8> = own.iter().copied().chain(charset).collect();
                changes.push(set("Content-Type", &own));
            }
            (Some(None), _) => changes.push(remove("Content-Type")),
            (None, Some(charset)) => default_charset = Some(Bytes::copy_from_slice(charset)),
            (None, None) => {}
        }
        if !target.etag {
            changes.push(remove("ETag"));
        }
    }
    (changes, default_charset)
}

/// A setting as a line of php.ini, in the form that php-fpm also reads in `PHP_VALUE`. Within
/// single quotes no character is special. A single quote is written in double quotes, and PHP
/// concatenates adjacent strings.
fn php_ini_line(setting: &apache::PhpSetting) -> Vec<u8> {
    let mut line = [&setting.name[..], b"='"].concat();
    for &byte in &setting.value {
        match byte {
            b'\'' => line.extend_from_slice(b"'\"'\"'"),
            // These characters would begin another line.
            b'\n' | b'\r' | 0 => {}
            _ => line.push(byte),
        }
    }
    line.extend_from_slice(b"'\n");
    line
}
