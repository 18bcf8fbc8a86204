//! The context of a trace as `traceparent` and `tracestate` carry it (W3C Trace Context, level 1).

use std::fmt;

/// The id of a trace; never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// The id of a span; never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl TraceId {
    /// A random id.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u128(1..))
    }
}

impl SpanId {
    /// A random id.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u64(1..))
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// 16 hexadecimal digits.
impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The span of the caller, from a request's `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: TraceId,
    /// The caller's span.
    pub span: SpanId,
    /// The caller records its span.
    pub is_sampled: bool,
}

impl Parent {
    /// Parses the value of the only `traceparent` field of a request (§3.2). `None`: it is not valid,
    /// and a new trace begins. Later versions of the format may have further parts behind the flags.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(55)?;
        let is_dash = |at: &usize| known[*at] == b'-';
        if ![2, 35, 52].iter().all(is_dash) {
            return None;
        }
        let version = hex(&known[..2])?;
        let may_have_more = version != 0 && more.first() == Some(&b'-');
        if version == 0xff || !(more.is_empty() || may_have_more) {
            return None;
        }
        let (trace, span) = (hex(&known[3..35])?, hex(&known[36..52])?);
        let span = u64::try_from(span).ok()?;
        let flags = hex(&known[53..])?;
        (trace != 0 && span != 0).then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            is_sampled: flags & 1 == 1,
        })
    }
}

/// Digits in lower case; `None`: there are other characters.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |sum, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u128::from(value))
    })
}

/// The place of a request in its trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTrace {
    /// The trace.
    pub trace: TraceId,
    /// The span of the request.
    pub span: SpanId,
    /// The span of the call to the application that answers, if one does.
    pub call: SpanId,
    /// The span of the caller.
    pub parent: Option<SpanId>,
    /// The value of `tracestate`, if it came with a valid `traceparent`.
    pub state: Option<String>,
    /// The spans of the request are recorded.
    pub is_sampled: bool,
}

impl RequestTrace {
    /// A request with new spans, whose caller is `parent`.
    #[must_use]
    pub fn new(parent: Option<Parent>, state: Option<String>, is_sampled: bool) -> Self {
        Self {
            trace: parent.map_or_else(TraceId::random, |parent| parent.trace),
            span: SpanId::random(),
            call: SpanId::random(),
            parent: parent.map(|parent| parent.span),
            state: state.filter(|_| parent.is_some()),
            is_sampled,
        }
    }

    /// The value of `traceparent` for callees of the request as a whole.
    #[must_use]
    pub fn of_request(&self) -> String {
        self.traceparent(self.span)
    }

    /// The value of `traceparent` for the application that answers.
    #[must_use]
    pub fn of_call(&self) -> String {
        self.traceparent(self.call)
    }

    fn traceparent(&self, span: SpanId) -> String {
        format!("00-{}-{span}-{:02x}", self.trace, u8::from(self.is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn valid_parents_are_taken_over() {
        for (version, flags, more, is_sampled) in [
            ("00", "01", "", true),
            ("00", "00", "", false),
            ("00", "03", "", true),
            ("00", "fe", "", false),
            ("cc", "01", "", true),
            ("cc", "01", "-more-parts", true),
            ("cc", "00", "-", false),
        ] {
            let text = format!("{version}-{TRACE}-{SPAN}-{flags}{more}");
            let parent = Parent::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(parent.is_sampled, is_sampled, "{text}");
            assert_eq!((&*parent.trace.to_string(), &*parent.span.to_string()), (TRACE, SPAN));
            let child = RequestTrace::new(Some(parent), Some("a=1".to_owned()), true);
            assert_eq!((child.parent, child.state.as_deref()), (Some(parent.span), Some("a=1")));
            assert_eq!(child.of_request(), format!("00-{TRACE}-{}-01", child.span));
            assert_eq!(child.of_call(), format!("00-{TRACE}-{}-01", child.call));
        }
    }

    #[test]
    fn other_values_begin_a_new_trace() {
        let upper = TRACE.to_uppercase();
        let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
        for bad in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!("cc-{TRACE}-{SPAN}-01more"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00-{upper}-{SPAN}-01"),
            format!("00-{no_trace}-{SPAN}-01"),
            format!("00-{TRACE}-{no_span}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("0x-{TRACE}-{SPAN}-01"),
            format!("00-{SPAN}-{TRACE}-01"),
        ] {
            assert_eq!(Parent::parse(bad.as_bytes()), None, "{bad}");
        }
        let new = RequestTrace::new(None, Some("a=1".to_owned()), false);
        assert_eq!((new.parent, &new.state), (None, &None));
        assert!(new.of_call().ends_with("-00") && new.trace != TraceId(0));
    }
}
