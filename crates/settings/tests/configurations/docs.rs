//! docs/config.md agrees with the declarations of the keys.

use std::path::{Path, PathBuf};

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md")
}

#[test]
fn the_page_says_what_the_declarations_say() {
    let page = std::fs::read_to_string(page()).unwrap();
    assert!(
        page == sendoff_settings::docs(),
        "docs/config.md is out of date; `make config` renews it"
    );
}

#[test]
#[ignore = "writes docs/config.md, for `make config`"]
fn renew() {
    std::fs::write(page(), sendoff_settings::docs()).unwrap();
}

#[test]
fn the_schema_is_json_and_knows_every_section() {
    let schema: serde_json::Value = serde_json::from_str(&sendoff_settings::schema()).unwrap();
    let site = &schema["properties"]["site"]["items"]["properties"];
    let route = &site["route"]["items"]["properties"];
    for (properties, key) in [(&schema["properties"], "listen"), (site, "hosts"), (route, "match")]
    {
        assert!(properties[key]["description"].is_string(), "{key}");
    }
}
