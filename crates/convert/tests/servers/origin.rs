//! The server that a file is for.

use std::path::Path;

use sendoff_convert::Origin;

#[test]
fn a_file_tells_its_server() {
    for (name, text, expected) in [
        ("nginx.conf", "user a;\nhttp {\n}\n", Origin::Nginx),
        ("site", "server {\n\tlisten 80;\n}\n", Origin::Nginx),
        ("site", "", Origin::Nginx),
        ("u.json", "", Origin::Unit),
        ("unit", "\u{feff} {\n\"listeners\": {}}", Origin::Unit),
        ("unit", "{ /* a */ }", Origin::Unit),
        ("Caddyfile", "", Origin::Caddy),
        ("Caddyfile.prod", "a;\n", Origin::Caddy),
        ("a.caddy", "", Origin::Caddy),
        ("site", "{\n\temail a@b\n}\nexample.org {\n}\n", Origin::Caddy),
        ("site", "# a\nexample.org {\n\trespond x\n}\n", Origin::Caddy),
        ("site", "localhost\nrespond x\n", Origin::Caddy),
        ("a.conf", "<VirtualHost *:80>\n</VirtualHost>\n", Origin::Apache),
        ("a.conf", "# a\nListen 80\n", Origin::Apache),
        ("a.conf", "Define A b\nDocumentRoot /srv\n", Origin::Apache),
        ("a.conf", "ServerTokens Prod\n<IfModule a>\n</IfModule>\n", Origin::Apache),
    ] {
        assert_eq!(Origin::of(Path::new(name), text), expected, "{name} {text}");
    }
}
