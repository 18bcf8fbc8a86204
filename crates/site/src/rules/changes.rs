//! Changes of the fields of a request or of a response, whose values may contain variables.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use sendoff_config::HeaderRule;
use sendoff_http1::client::HopByHop;
use sendoff_message::configured::shared_field;
use sendoff_message::request::Request;
use sendoff_message::response::Field;

use super::route::bytes;
use crate::field_change::{Action, FieldChange, FieldChanges};
use crate::maps::Maps;
use crate::text::{Captured, Text, Use};

/// A change of header fields whose value may contain variables.
#[derive(Debug)]
pub(super) struct TextChange {
    action: Action,
    name: Bytes,
    text: Text,
}

impl TextChange {
    pub(super) fn parse(rule: &HeaderRule, maps: &Maps) -> Self {
        let (action, name, text) = match rule {
            HeaderRule::Set(name, text) => (Action::Set, name, &text[..]),
            HeaderRule::Add(name, text) => (Action::Add, name, &text[..]),
            HeaderRule::Default(name, text) => (Action::Default, name, &text[..]),
            HeaderRule::Remove(name) => (Action::Remove, name, ""),
        };
        Self { action, name: bytes(name), text: Text::parse(text, maps) }
    }

    pub(super) fn text(&self) -> &Text {
        &self.text
    }

    /// The change, if it is the same for all requests.
    pub(super) fn fixed(&self) -> Option<FieldChange> {
        let field = shared_field(&self.name, &self.text.fixed()?);
        Some(FieldChange { action: self.action, field })
    }

    /// `None`: nothing is changed.
    pub(super) fn render(&self, request: &Request, captured: &Captured) -> Option<FieldChange> {
        let value = self.text.bytes(request, captured, Use::Field);
        let action = self.action_for(&value)?;
        Some(FieldChange { action, field: Field::Own(self.name.clone(), value) })
    }

    /// The change for a value. A field of which a map makes nothing is not set, and the field that
    /// it would have replaced is removed.
    pub(super) fn action_for(&self, value: &[u8]) -> Option<Action> {
        if !value.is_empty() || self.text.maps().next().is_none() {
            return Some(self.action);
        }
        match self.action {
            Action::Set | Action::Remove => Some(Action::Remove),
            Action::Add | Action::Default => None,
        }
    }

    /// Changes the request's fields. An invalid field is ignored.
    pub(super) fn apply_to_request(&self, request: &mut Request, captured: &Captured) {
        let Ok(name) = HeaderName::from_bytes(&self.name) else { return };
        let value = self.text.bytes(request, captured, Use::Field);
        let Some(action) = self.action_for(&value) else { return };
        if action == Action::Remove {
            request.rule(&name);
            request.headers.remove(name);
            return;
        }
        let Ok(value) = HeaderValue::from_maybe_shared(value) else { return };
        let is_sent = || {
            let headers = &request.headers;
            headers.contains_key(&name) && !HopByHop::of(headers).nominates(&name)
        };
        let stays = action == Action::Default && is_sent();
        request.rule(&name);
        if stays {
            return;
        }
        match action {
            Action::Add => {
                request.headers.append(name, value);
            }
            Action::Set | Action::Default | Action::Remove => {
                request.headers.insert(name, value);
            }
        }
    }
}

/// Changes of response fields.
#[derive(Debug)]
pub(super) enum HeadChanges {
    None,
    /// The same for all requests.
    Fixed(Rc<FieldChanges>),
    Rendered(Vec<TextChange>),
}

impl HeadChanges {
    pub(super) fn new(changes: Vec<TextChange>) -> Self {
        if changes.is_empty() {
            return Self::None;
        }
        let fixed: Option<Vec<_>> = changes.iter().map(TextChange::fixed).collect();
        fixed.map_or(Self::Rendered(changes), |fixed| Self::Fixed(FieldChanges::new(fixed).into()))
    }

    pub(super) fn render(
        &self,
        request: &Request,
        captured: &Captured,
    ) -> Option<Rc<FieldChanges>> {
        match self {
            Self::None => None,
            Self::Fixed(changes) => Some(Rc::clone(changes)),
            Self::Rendered(changes) => {
                let changes = changes.iter().filter_map(|change| change.render(request, captured));
                Some(FieldChanges::once(changes).into())
            }
        }
    }
}
