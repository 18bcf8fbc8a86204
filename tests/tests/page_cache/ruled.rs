//! Request fields that rules of the server set for some clients: the application's pages for these
//! clients are for no others.

use sendoff_tests::{Request, Site, wait};

use crate::{CachingServer, PAGE, is_hit};

/// `X-A` becomes 1 for requests with `X-Role: admin`.
const HTACCESS: &str = "<If \"%{HTTP:X-Role} == 'admin'\">\nRequestHeader set X-A 1\n</If>\n";
const LUA: &str = "local fields = lighty.r.req_header\n\
                   if fields['X-Role'] == 'admin' then fields['X-A'] = '1' end\n";

fn only_admins_get_their_page(kept: &CachingServer) {
    let page = "/page.php?head=Cache-Control:+max-age=60&body=for";
    let admin = Request::get(page).header("X-Role", "admin");
    let for_admin = wait::for_some("a kept page", || Some(kept.server.ask(&admin)).filter(is_hit));
    assert!(for_admin.text().contains(" 1 "), "{}", for_admin.text());
    let others = kept.get_kept(page);
    assert!(others.text().contains(" - "), "{}", others.text());
    assert_eq!(kept.runs(), 2);
}

#[test]
fn htaccess_files_that_set_a_field_for_some_clients() {
    let site = Site::with("page.php", PAGE);
    site.write(".htaccess", HTACCESS);
    only_admins_get_their_page(&CachingServer::with_lines(site, "htaccess = true", "10m"));
}

#[test]
fn scripts_that_set_a_field_for_some_clients() {
    let site = Site::with("page.php", PAGE);
    let script = site.write_at(site.outside("role.lua"), LUA);
    let route = format!("[[site.route]]\nlua = '{}'", script.display());
    only_admins_get_their_page(&CachingServer::with_route(site, "10m", &route));
}

#[test]
fn routes_that_set_a_field_for_some_clients() {
    let route = "[[site.route]]\nheader = { X-Role = 'admin' }\nrequest_headers = { X-A = '1' }";
    let site = Site::with("page.php", PAGE);
    only_admins_get_their_page(&CachingServer::with_route(site, "10m", route));
}

/// The client's address makes no pages of their own: scripts know it as `REMOTE_ADDR`, too.
#[test]
fn a_field_with_the_address_of_the_client() {
    let route = "[[site.route]]\nrequest_headers = { X-A = '$remote_addr' }";
    let kept = CachingServer::with_route(Site::with("page.php", PAGE), "10m", route);
    let page = "/page.php?head=Cache-Control:+max-age=60&body=for";
    kept.get_kept(page);
    let other = Request::get(page).header("X-Forwarded-For", "192.0.2.7");
    assert!(is_hit(&kept.server.ask(&other)));
}
