//! Directives that need no equal: they have no effect on answers, or Sendoff does the same.

use sendoff_convert_document::Directive;

/// Beginnings of the names of directives about caches, processes, logs and the way to applications.
const PREFIXES: [&str; 6] = ["sslsession", "sslstapling", "sslrandom", "keepalive", "h2", "mpm"];

/// Directives that change no answer.
const SILENT: &[&str] = &[
    "acceptfilter",
    "accessfilename",
    "addicon",
    "addiconbyencoding",
    "addiconbytype",
    "addalt",
    "authname",
    "authtype",
    "authuserfile",
    "authbasicprovider",
    "cgidscriptsock",
    "contentdigest",
    "defaulticon",
    "defaultruntimedir",
    "deflatecompressionlevel",
    "directorychecksymlink",
    "enablemmap",
    "enablesendfile",
    "errorlog",
    "errorlogformat",
    "extendedstatus",
    "fileetag",
    "globallog",
    "group",
    "headername",
    "hostnamelookups",
    "httpprotocoloptions",
    "indexoptions",
    "listenbacklog",
    "logformat",
    "loglevel",
    "maxconnectionsperchild",
    "maxkeepaliverequests",
    "maxrequestworkers",
    "maxsparethreads",
    "maxspareservers",
    "minsparethreads",
    "minspareservers",
    "mimemagicfile",
    "mutex",
    "namevirtualhost",
    "pidfile",
    "protocols",
    "proxybadheader",
    "proxyiobuffersize",
    "proxyreceivebuffersize",
    "proxyrequests",
    "proxystatus",
    "proxytimeout",
    "proxyvia",
    "readmename",
    "requestreadtimeout",
    "rlimitcpu",
    "rlimitmem",
    "rlimitnproc",
    "rewritebase",
    "rewriteengine",
    "satisfy",
    "serveradmin",
    "serverlimit",
    "serversignature",
    "servertokens",
    "sslciphersuite",
    "sslcompression",
    "sslhonorcipherorder",
    "sslopensslconfcmd",
    "ssloptions",
    "sslpassphrasedialog",
    "sslproxyengine",
    "sslproxyverify",
    "sslproxycheckpeername",
    "sslproxycheckpeercn",
    "sslproxycheckpeerexpire",
    "startservers",
    "threadlimit",
    "threadsperchild",
    "traceenable",
    "typesconfig",
    "usecanonicalname",
    "usecanonicalphysicalport",
];

/// Directives that other modules of the converter convert, or name in the result.
const CONVERTED: &[&str] = &[
    "addhandler",
    "addtype",
    "addoutputfilterbytype",
    "alias",
    "aliasmatch",
    "allow",
    "allowoverride",
    "allowoverridelist",
    "balancermember",
    "customlog",
    "deny",
    "directoryindex",
    "documentroot",
    "errordocument",
    "expiresdefault",
    "expiresactive",
    "fallbackresource",
    "forcetype",
    "header",
    "limitrequestbody",
    "listen",
    "options",
    "order",
    "proxypass",
    "proxypassmatch",
    "proxypassreverse",
    "proxypassreversecookiedomain",
    "proxypassreversecookiepath",
    "proxypreservehost",
    "proxyaddheaders",
    "proxyset",
    "php_admin_flag",
    "php_admin_value",
    "php_flag",
    "php_value",
    "redirect",
    "redirectmatch",
    "redirectpermanent",
    "redirecttemp",
    "remoteipheader",
    "remoteipinternalproxy",
    "remoteiptrustedproxy",
    "requestheader",
    "require",
    "rewritecond",
    "rewriterule",
    "scriptalias",
    "scriptaliasmatch",
    "serveralias",
    "servername",
    "setenv",
    "sethandler",
    "sslcacertificatefile",
    "sslcertificatechainfile",
    "sslcertificatefile",
    "sslcertificatekeyfile",
    "sslengine",
    "sslprotocol",
    "sslrequiressl",
    "sslverifyclient",
    "sslverifydepth",
    "timeout",
    "user",
    "removehandler",
    "removetype",
    "vhostaliases",
    "<limit",
    "<limitexcept",
    "<requireall",
    "<requireany",
    "<requirenone",
];

/// True if the directive is converted elsewhere, or needs no equal.
pub(super) fn is_known(directive: &Directive) -> bool {
    let name = directive.name.as_str();
    SILENT.contains(&name)
        || CONVERTED.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || sets_nothing(directive)
}

/// Directives that change answers, of which a file has many: one comment stands for all of a name.
pub(super) const MANY: [&str; 2] = ["addcharset", "addlanguage"];

/// True for a directive whose words have no effect on answers.
fn sets_nothing(directive: &Directive) -> bool {
    /// Names that Apache itself reads, about old clients.
    const OLD: [&str; 7] = [
        "nokeepalive",
        "downgrade-1.0",
        "force-response-1.0",
        "redirect-carefully",
        "ssl-unclean-shutdown",
        "gzip-only-text/html",
        "no-gzip",
    ];
    /// Names that no listing of Sendoff has, or that no site has.
    const HIDDEN: [&str; 10] =
        [".??*", ".*", "*~", "*#", "HEADER*", "README*", "RCS", "CVS", "*,v", "*,t"];
    let words = &directive.words[..];
    let is_off = directive.word().eq_ignore_ascii_case("off");
    match directive.name.as_str() {
        "browsermatch" | "browsermatchnocase" => {
            words.iter().skip(1).all(|word| OLD.contains(&&**word))
        }
        "setenvif" | "setenvifnocase" => words.iter().skip(2).all(|word| OLD.contains(&&**word)),
        "indexignore" => words.iter().all(|word| HIDDEN.contains(&&**word)),
        "proxyerroroverride" => is_off,
        "languagepriority" | "forcelanguagepriority" => true,
        _ => false,
    }
}
