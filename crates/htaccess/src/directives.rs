//! The directives: one table for the parser and the documentation.

use std::sync::Arc;

use crate::access::{Check, Group, HostAccess, Methods, Requirement};
use crate::environment::{Conditional, Fixed};
use crate::expires::Lifetime;
use crate::expression::Template;
use crate::header::HeaderRule;
use crate::media::Property;
use crate::outcome::PhpSetting;
use crate::problem::Problem;
use crate::redirect::{Form, Redirect, is_uri};
use crate::rewrite;
use crate::scope::{AuthMerging, Document, OptionChange, PathInfo, Scope};
use crate::syntax::words;
use crate::text::{self, lossy};

/// The treatment of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The directive works as in Apache.
    Obeyed,
    /// The directive has no effect here, and is not about access.
    Ignored,
    /// Requests that the directive covers are answered with 403.
    Refused,
}

/// A directive.
pub(crate) struct Directive {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    pub(crate) parse: fn(&mut DirectiveContext<'_>, &[u8]) -> Parsed,
}

type Parsed = Result<(), Problem>;

/// The surroundings of a directive.
pub(crate) struct DirectiveContext<'a> {
    pub(crate) scope: &'a mut Scope,
    /// The methods of the `<Limit>` around it.
    pub(crate) methods: &'a Methods,
    /// The group of requirements around it.
    pub(crate) group: Option<&'a mut Group>,
    pub(crate) line: usize,
}

/// The known directives, and the treatment of each.
pub fn directives() -> impl Iterator<Item = (&'static str, Effect)> {
    DIRECTIVES.iter().map(|directive| (directive.name, directive.effect))
}

/// A directive by its name, without regard to case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Directive> {
    DIRECTIVES.iter().find(|directive| directive.name.as_bytes().eq_ignore_ascii_case(name))
}

const fn obeyed(
    name: &'static str,
    parse: fn(&mut DirectiveContext<'_>, &[u8]) -> Parsed,
) -> Directive {
    Directive { name, effect: Effect::Obeyed, parse }
}

const fn ignored(name: &'static str) -> Directive {
    let parse = |_: &mut DirectiveContext<'_>, _: &[u8]| {
        Err(Problem::Ignored("the directive has no effect in this server".to_owned()))
    };
    Directive { name, effect: Effect::Ignored, parse }
}

const fn refused(name: &'static str) -> Directive {
    let parse = |_: &mut DirectiveContext<'_>, _: &[u8]| {
        Err(Problem::Refused("the directive is not supported".to_owned()))
    };
    Directive { name, effect: Effect::Refused, parse }
}

/// All directives that Apache with the usual modules allows in a folder.
pub(crate) static DIRECTIVES: &[Directive] = &[
    // Rewriting.
    obeyed("RewriteEngine", |place, rest| {
        rewriting(place).engine = Some(flag(rest)?);
        Ok(())
    }),
    obeyed("RewriteBase", |place, rest| rewriting(place).set_base(&one(rest)?)),
    obeyed("RewriteOptions", |place, rest| rewriting(place).set_options(&words(rest))),
    obeyed("RewriteCond", |place, rest| rewriting(place).condition(rest)),
    obeyed("RewriteRule", |place, rest| {
        let line = place.line;
        rewriting(place).rule(line, rest)
    }),
    // Redirects.
    obeyed("Redirect", |place, rest| redirect(place, Form::Redirect, rest)),
    obeyed("RedirectMatch", |place, rest| redirect(place, Form::Match, rest)),
    obeyed("RedirectTemp", |place, rest| redirect(place, Form::Temporary, rest)),
    obeyed("RedirectPermanent", |place, rest| redirect(place, Form::Permanent, rest)),
    // Access.
    obeyed("Require", require),
    obeyed("AuthMerging", |place, rest| {
        let merging = match one(rest)?.to_ascii_lowercase().as_slice() {
            b"off" => AuthMerging::Replace,
            b"and" => AuthMerging::And,
            b"or" => AuthMerging::Or,
            _ => return Err("the directive wants Off, And or Or".into()),
        };
        place.scope.auth_merging = Some(merging);
        Ok(())
    }),
    obeyed("Order", |place, rest| {
        let order = one(rest)?;
        let methods = place.methods;
        hosts(place).set_order(methods, &order)
    }),
    obeyed("Allow", |place, rest| {
        let methods = place.methods;
        hosts(place).add(true, methods, &words(rest))
    }),
    obeyed("Deny", |place, rest| {
        let methods = place.methods;
        hosts(place).add(false, methods, &words(rest))
    }),
    obeyed("Satisfy", |place, rest| {
        let which = one(rest)?;
        let methods = place.methods;
        hosts(place).set_satisfy(methods, &which)
    }),
    obeyed("AuthType", |place, rest| {
        let kind = one(rest)?;
        let basic = kind.eq_ignore_ascii_case(b"Basic");
        if !basic && !kind.eq_ignore_ascii_case(b"None") {
            let kind = lossy(&kind);
            let text = format!("{kind} is not supported; AuthType Basic over TLS is");
            return Err(Problem::Refused(text));
        }
        place.scope.authentication.basic = Some(basic);
        Ok(())
    }),
    obeyed("AuthName", |place, rest| {
        place.scope.authentication.realm = Some(one(rest)?);
        Ok(())
    }),
    obeyed("AuthUserFile", |place, rest| {
        place.scope.authentication.users = Some(absolute(rest)?);
        Ok(())
    }),
    obeyed("AuthBasicProvider", |_, rest| match words(rest).as_slice() {
        [provider] if provider.eq_ignore_ascii_case(b"file") => Ok(()),
        _ => Err(Problem::Refused("only the provider \"file\" is supported".to_owned())),
    }),
    refused("AuthBasicAuthoritative"),
    refused("AuthBasicFake"),
    refused("AuthBasicUseDigestAlgorithm"),
    obeyed("AuthGroupFile", |place, rest| {
        place.scope.authentication.groups = Some(absolute(rest)?);
        Ok(())
    }),
    refused("AuthzSendForbiddenOnFailure"),
    obeyed("SSLRequireSSL", |place, rest| {
        if !rest.is_empty() {
            return Err("the directive has no value".into());
        }
        place.scope.require_tls = Some(place.line);
        Ok(())
    }),
    refused("SSLRequire"),
    refused("SSLVerifyClient"),
    refused("SSLVerifyDepth"),
    refused("SSLCipherSuite"),
    ignored("SSLOptions"),
    ignored("SSLRenegBufferSize"),
    ignored("SSLUserName"),
    obeyed("LimitRequestBody", |place, rest| {
        let value = one(rest)?;
        let size = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
        place.scope.max_body = Some(size.ok_or("the directive wants a number of bytes")?);
        Ok(())
    }),
    // Header fields.
    obeyed("Header", |place, rest| {
        let rule = HeaderRule::parse(false, rest)?;
        place.scope.response_headers.push(Arc::new(rule));
        Ok(())
    }),
    obeyed("RequestHeader", |place, rest| {
        let rule = HeaderRule::parse(true, rest)?;
        place.scope.request_headers.push(rule);
        Ok(())
    }),
    // Variables.
    obeyed("SetEnv", |place, rest| {
        let fixed = match words(rest).as_slice() {
            [name] => Fixed::Set(name.clone(), Vec::new()),
            [name, value] => Fixed::Set(name.clone(), value.clone()),
            _ => return Err("the directive wants a name and a value".into()),
        };
        place.scope.fixed.push(fixed);
        Ok(())
    }),
    obeyed("UnsetEnv", |place, rest| {
        place.scope.fixed.extend(words(rest).into_iter().map(Fixed::Unset));
        Ok(())
    }),
    obeyed("SetEnvIf", |place, rest| conditional(place, Conditional::parse(rest, false))),
    obeyed("SetEnvIfNoCase", |place, rest| conditional(place, Conditional::parse(rest, true))),
    obeyed("SetEnvIfExpr", |place, rest| conditional(place, Conditional::parse_expression(rest))),
    obeyed("BrowserMatch", |place, rest| {
        conditional(place, Conditional::parse_with(b"User-Agent", rest, false))
    }),
    obeyed("BrowserMatchNoCase", |place, rest| {
        conditional(place, Conditional::parse_with(b"User-Agent", rest, true))
    }),
    ignored("PassEnv"),
    // Types.
    obeyed("AddType", |place, rest| add(place, Property::Type, rest)),
    obeyed("AddEncoding", |place, rest| add(place, Property::Encoding, rest)),
    obeyed("AddCharset", |place, rest| add(place, Property::Charset, rest)),
    obeyed("AddLanguage", |place, rest| add(place, Property::Language, rest)),
    obeyed("AddHandler", |place, rest| add(place, Property::Handler, rest)),
    obeyed("RemoveType", |place, rest| remove(place, Property::Type, rest)),
    obeyed("RemoveEncoding", |place, rest| remove(place, Property::Encoding, rest)),
    obeyed("RemoveCharset", |place, rest| remove(place, Property::Charset, rest)),
    obeyed("RemoveLanguage", |place, rest| remove(place, Property::Language, rest)),
    obeyed("RemoveHandler", |place, rest| remove(place, Property::Handler, rest)),
    obeyed("ForceType", |place, rest| {
        let value = one(rest)?;
        place.scope.force_type = Some((!value.eq_ignore_ascii_case(b"none")).then_some(value));
        Ok(())
    }),
    obeyed("SetHandler", |place, rest| {
        let value = one(rest)?;
        if value.starts_with(b"expr=") || text::find(&value, b"%{").is_some() {
            return Err(Problem::Refused("expressions are not supported here".to_owned()));
        }
        place.scope.handler = Some((!value.eq_ignore_ascii_case(b"none")).then_some(value));
        Ok(())
    }),
    obeyed("AddDefaultCharset", |place, rest| {
        let value = one(rest)?;
        let charset = match value.to_ascii_lowercase().as_slice() {
            b"off" => None,
            b"on" => Some(b"iso-8859-1".to_vec()),
            _ => Some(value),
        };
        place.scope.default_charset = Some(charset);
        Ok(())
    }),
    obeyed("AddOutputFilter", |place, rest| {
        let words = words(rest);
        let [filters, endings @ ..] = words.as_slice() else {
            return Err("the directive wants filters and endings".into());
        };
        if compresses_only(filters) {
            return Err(Problem::Ignored("the server decides about compression".to_owned()));
        }
        place.scope.media.add(Property::Handler, b"server-parsed", endings);
        Ok(())
    }),
    obeyed("SetOutputFilter", |_, rest| {
        if compresses_only(&one(rest)?) {
            return Err(Problem::Ignored("the server decides about compression".to_owned()));
        }
        Err(Problem::Refused("output filters are not supported".to_owned()))
    }),
    ignored("AddOutputFilterByType"),
    ignored("RemoveOutputFilter"),
    ignored("RemoveInputFilter"),
    refused("SetInputFilter"),
    refused("AddInputFilter"),
    Directive { name: "FilterChain", effect: Effect::Ignored, parse: filter },
    Directive { name: "FilterProvider", effect: Effect::Ignored, parse: filter },
    Directive { name: "FilterDeclare", effect: Effect::Ignored, parse: filter },
    Directive { name: "FilterProtocol", effect: Effect::Ignored, parse: filter },
    ignored("MultiviewsMatch"),
    ignored("DefaultType"),
    ignored("DefaultLanguage"),
    ignored("LanguagePriority"),
    ignored("ForceLanguagePriority"),
    // Folders and files.
    obeyed("Options", options),
    obeyed("DirectoryIndex", |place, rest| {
        let names = words(rest);
        if names.is_empty() {
            return Err("the directive wants names of files".into());
        }
        let index = place.scope.index.get_or_insert_default();
        for name in names {
            // `disabled` forgets the names before it.
            if name.eq_ignore_ascii_case(b"disabled") {
                index.clear();
            } else {
                index.push(name);
            }
        }
        Ok(())
    }),
    obeyed("DirectorySlash", |place, rest| {
        place.scope.slash = Some(flag(rest)?);
        Ok(())
    }),
    obeyed("FallbackResource", |place, rest| {
        let path = one(rest)?;
        place.scope.fallback = Some((!path.eq_ignore_ascii_case(b"disabled")).then_some(path));
        Ok(())
    }),
    obeyed("AcceptPathInfo", |place, rest| {
        place.scope.path_info = Some(match one(rest)?.to_ascii_lowercase().as_slice() {
            b"on" => PathInfo::Always,
            b"off" => PathInfo::Never,
            b"default" => PathInfo::ByHandler,
            _ => return Err("the directive wants On, Off or Default".into()),
        });
        Ok(())
    }),
    obeyed("ErrorDocument", error_document),
    obeyed("FileETag", |place, rest| {
        let words = words(rest);
        let none = words.iter().any(|word| word.eq_ignore_ascii_case(b"none"));
        place.scope.etag = Some(!none);
        Ok(())
    }),
    refused("DirectoryCheckHandler"),
    refused("DirectoryIndexRedirect"),
    ignored("IndexOptions"),
    ignored("IndexIgnore"),
    ignored("IndexIgnoreReset"),
    ignored("IndexOrderDefault"),
    ignored("IndexStyleSheet"),
    ignored("IndexHeadInsert"),
    ignored("HeaderName"),
    ignored("ReadmeName"),
    ignored("AddIcon"),
    ignored("AddIconByEncoding"),
    ignored("AddIconByType"),
    ignored("AddAlt"),
    ignored("AddAltByEncoding"),
    ignored("AddAltByType"),
    ignored("AddDescription"),
    ignored("DefaultIcon"),
    // Freshness.
    obeyed("ExpiresActive", |place, rest| {
        place.scope.expires.active = Some(flag(rest)?);
        Ok(())
    }),
    obeyed("ExpiresDefault", |place, rest| {
        place.scope.expires.default = Some(Lifetime::parse(&joined(rest))?);
        Ok(())
    }),
    obeyed("ExpiresByType", |place, rest| {
        let words = words(rest);
        let [media_type, time @ ..] = words.as_slice() else {
            return Err("the directive wants a media type and a time".into());
        };
        let lifetime = Lifetime::parse(&time.join(&b' '))?;
        let entry = (media_type.to_ascii_lowercase(), lifetime);
        place.scope.expires.by_type.push(entry);
        Ok(())
    }),
    // PHP.
    obeyed("php_value", |place, rest| {
        let words = words(rest);
        let [name, value] = words.as_slice() else {
            return Err("the directive wants a name and a value".into());
        };
        let value = if value.eq_ignore_ascii_case(b"none") { Vec::new() } else { value.clone() };
        place.scope.php.push(PhpSetting { name: name.clone(), value });
        Ok(())
    }),
    obeyed("php_flag", |place, rest| {
        let words = words(rest);
        let [name, value] = words.as_slice() else {
            return Err("the directive wants a name and on or off".into());
        };
        let on = value.eq_ignore_ascii_case(b"on") || value == b"1";
        let value = if on { b"1".to_vec() } else { b"0".to_vec() };
        place.scope.php.push(PhpSetting { name: name.clone(), value });
        Ok(())
    }),
    // Directives about decisions that the server makes itself.
    ignored("ContentDigest"),
    ignored("EnableMMAP"),
    ignored("EnableSendfile"),
    ignored("CacheDisable"),
    ignored("CGIPassAuth"),
    ignored("LimitXMLRequestBody"),
    ignored("QualifyRedirectURL"),
    ignored("RLimitCPU"),
    ignored("RLimitMEM"),
    ignored("RLimitNPROC"),
    ignored("ServerSignature"),
    refused("Action"),
    refused("CGIVar"),
];

fn one(rest: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut words = words(rest);
    match words.len() {
        1 => Ok(words.remove(0)),
        _ => Err("the directive wants one value; quote it if it has blanks".into()),
    }
}

/// An absolute path, for files outside of the site.
fn absolute(rest: &[u8]) -> Result<Vec<u8>, Problem> {
    let path = one(rest)?;
    match path.first() {
        Some(b'/') => Ok(path),
        _ => Err(Problem::Refused("the path must begin with a slash".to_owned())),
    }
}

fn flag(rest: &[u8]) -> Result<bool, Problem> {
    match one(rest)?.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err("the directive wants On or Off".into()),
    }
}

fn joined(rest: &[u8]) -> Vec<u8> {
    words(rest).join(&b' ')
}

fn rewriting<'a>(place: &'a mut DirectiveContext<'_>) -> &'a mut rewrite::Config {
    place.scope.rewrite.get_or_insert_default()
}

fn hosts<'a>(place: &'a mut DirectiveContext<'_>) -> &'a mut HostAccess {
    let hosts = place.scope.hosts.get_or_insert_default();
    hosts.line = place.line;
    hosts
}

fn redirect(place: &mut DirectiveContext<'_>, form: Form, rest: &[u8]) -> Parsed {
    let redirect = Redirect::parse(place.line, form, rest)?;
    // A redirect of the whole folder comes first.
    let at = if redirect.covers_all() { 0 } else { place.scope.redirects.len() };
    place.scope.redirects.insert(at, redirect);
    Ok(())
}

fn conditional(place: &mut DirectiveContext<'_>, parsed: Result<Conditional, Problem>) -> Parsed {
    place.scope.conditional.push(parsed?);
    Ok(())
}

fn add(place: &mut DirectiveContext<'_>, property: Property, rest: &[u8]) -> Parsed {
    let words = words(rest);
    let [value, endings @ ..] = words.as_slice() else {
        return Err("the directive wants a value and endings".into());
    };
    if endings.is_empty() {
        return Err("the directive wants endings behind the value".into());
    }
    place.scope.media.add(property, value, endings);
    Ok(())
}

fn remove(place: &mut DirectiveContext<'_>, property: Property, rest: &[u8]) -> Parsed {
    let endings = words(rest);
    if endings.is_empty() {
        return Err("the directive wants endings".into());
    }
    place.scope.media.remove(property, &endings);
    Ok(())
}

fn compresses_only(filters: &[u8]) -> bool {
    const COMPRESSING: [&[u8]; 4] = [b"deflate", b"brotli_compress", b"inflate", b"none"];
    let filters = filters.to_ascii_lowercase();
    filters.split(|byte| *byte == b';').all(|filter| COMPRESSING.contains(&filter))
}

/// Accepts filters without effect: they compress, which the server does by itself. Includes are
/// refused: without them the source of the file would be sent.
fn filter(_: &mut DirectiveContext<'_>, rest: &[u8]) -> Parsed {
    if text::find(&rest.to_ascii_lowercase(), b"include").is_some() {
        return Err(Problem::Refused("includes are not supported".to_owned()));
    }
    Err(Problem::Ignored("the server decides about compression".to_owned()))
}

fn require(place: &mut DirectiveContext<'_>, mut rest: &[u8]) -> Parsed {
    let mut kind = crate::syntax::word(&mut rest).ok_or("the requirement is missing")?;
    let negated = kind.eq_ignore_ascii_case(b"not");
    if negated {
        kind = crate::syntax::word(&mut rest).ok_or("the requirement is missing")?;
    }
    let check = Check::parse(&kind, rest)?;
    let requirement = Requirement::Check { check, negated, methods: place.methods.clone() };
    if negated && !place.group.as_ref().is_some_and(|group| group.takes_negative()) {
        return Err("\"not\" never grants anything; put it into <RequireAll>".into());
    }
    match &mut place.group {
        Some(group) => group.parts.push(requirement),
        None => {
            let group = place.scope.require.get_or_insert_with(|| Group::any(place.line));
            group.parts.push(requirement);
        }
    }
    Ok(())
}

fn options(place: &mut DirectiveContext<'_>, rest: &[u8]) -> Parsed {
    let names = words(rest);
    let relative = |name: &Vec<u8>| matches!(name.first(), Some(b'+' | b'-'));
    let all_relative = names.iter().all(relative);
    if !all_relative && names.iter().any(relative) {
        return Err("either all options have + or -, or none has".into());
    }
    if !all_relative {
        place.scope.options.push(OptionChange::Clear);
    }
    for name in names {
        let (on, name) = match name.as_slice() {
            [b'+', rest @ ..] => (true, rest),
            [b'-', rest @ ..] => (false, rest),
            name => (true, name),
        };
        let changes: &[OptionChange] = match name.to_ascii_lowercase().as_slice() {
            b"indexes" => &[OptionChange::Listing(on)],
            b"followsymlinks" => &[OptionChange::FollowLinks(on)],
            b"symlinksifownermatch" => &[OptionChange::FollowOwnLinks(on)],
            b"all" => &[OptionChange::Listing(on), OptionChange::FollowLinks(on)],
            b"none" => &[OptionChange::Clear],
            // No effect: programs, includes and negotiation are not supported.
            b"execcgi" | b"includes" | b"includesnoexec" | b"multiviews" => &[],
            other => return Err(format!("there is no option {:?}", lossy(other)).into()),
        };
        place.scope.options.extend(changes);
    }
    Ok(())
}

fn error_document(place: &mut DirectiveContext<'_>, rest: &[u8]) -> Parsed {
    let words = words(rest);
    let [status, document] = words.as_slice() else {
        return Err("the directive wants a status and a document; quote a text".into());
    };
    let known = u16::try_from(text::number(status)).ok();
    let Some(status) = known.filter(|status| (400..600).contains(status)) else {
        return Err(format!("{:?} is no status of an error", lossy(status)).into());
    };
    let template = || Template::parse(document).map_err(Problem::Refused);
    let document = if document.eq_ignore_ascii_case(b"default") {
        None
    } else if document.contains(&b' ') {
        Some(Document::Text(template()?))
    } else if document.first() == Some(&b'/') {
        Some(Document::Path(template()?))
    } else if is_uri(document) {
        Some(Document::Uri(template()?))
    } else {
        Some(Document::Text(template()?))
    };
    place.scope.error_documents.push((status, document));
    Ok(())
}
